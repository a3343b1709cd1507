import json
import re

import reprieve_plugin as plugin

# Day, month and year as people write them. Two digits of a year, and a month that may be the day, are not guessed.
FORMS = {
    "dmy": re.compile(r"^(?P<d>\d{1,2})[./](?P<m>\d{1,2})[./](?P<y>\d{4})$"),
    "mdy": re.compile(r"^(?P<m>\d{1,2})[./](?P<d>\d{1,2})[./](?P<y>\d{4})$"),
}
COMPACT = re.compile(r"^(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})$")
ISO = re.compile(r"^\d{4}-\d{2}-\d{2}$")
DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Dates(plugin.Transform, plugin.Stage):
    """As a transform it mends the dates of a quarantined invoice; as a stage it keeps invoices out whose dates are not ISO 8601."""

    wants_view = True

    def configure(self, config):
        self.fields = config.get("fields", ["due_date"])
        self.form = FORMS[config.get("order", "dmy")]

    def repair(self, e):
        try:
            document = json.loads(e.value)
        except (TypeError, ValueError, RecursionError):
            return plugin.rejected("the value is not JSON")
        if not isinstance(document, dict):
            return plugin.rejected("the value is not a JSON object")
        value, changed = e.value, []
        for name in self.fields:
            text = document.get(name)
            if not isinstance(text, str):
                return plugin.rejected("a date is missing, or is no text")
            if ISO.match(text):
                continue
            date = self.iso(text)
            if date is None:
                return plugin.rejected("a date cannot be understood")
            value = replace(value, name, text, date)
            if value is None:
                return plugin.rejected("a date is written in a way that cannot be replaced alone")
            changed.append("/" + name)
        return plugin.repaired(value=value, changed=changed) if changed else plugin.unchanged()

    def process(self, r):
        if not isinstance(r.view, dict):
            return plugin.passed()
        for name in self.fields:
            text = r.view.get(name)
            if isinstance(text, str) and not ISO.match(text):
                return plugin.reject("date-form")
        return plugin.passed()

    def iso(self, text):
        m = COMPACT.match(text.strip()) or self.form.match(text.strip())
        if not m:
            return None
        y, month, d = int(m["y"]), int(m["m"]), int(m["d"])
        if not 1 <= month <= 12 or not 1 <= d <= DAYS[month - 1]:
            return None
        return "%04d-%02d-%02d" % (y, month, d)


def replace(value, name, old, new):
    """Replaces one text member in the bytes and leaves every other byte as it is. None: it is not there once, plainly spelled."""
    member = re.compile(rb'("%s"\s*:\s*)"%s"' % (re.escape(name.encode()), re.escape(old.encode())))
    out, n = member.subn(lambda m: m[1] + b'"' + new.encode() + b'"', value)
    return out if n == 1 else None
