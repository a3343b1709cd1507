import unittest

import reprieve_plugin as plugin
from dates import Dates


def repair(value, **config):
    d = Dates()
    d.configure(config)
    return d.repair(plugin.Envelope(value=value))


class DatesTest(unittest.TestCase):
    def test_a_date_is_written_as_iso_and_all_else_stays(self):
        for value, config, want in (
            (b'{"net": 1.50,  "due_date" : "31.12.2026"}', {}, b'{"net": 1.50,  "due_date" : "2026-12-31"}'),
            (b'{"due_date":"20261231"}', {}, b'{"due_date":"2026-12-31"}'),
            (b'{"due_date":"12/31/2026"}', {"order": "mdy"}, b'{"due_date":"2026-12-31"}'),
            (b'{"due_date":"2026-01-01","issued":"1.2.2026"}', {"fields": ["due_date", "issued"]}, b'{"due_date":"2026-01-01","issued":"2026-02-01"}'),
        ):
            r = repair(value, **config)
            self.assertEqual(r.fields.get("value"), want)

    def test_what_is_right_stays(self):
        self.assertEqual(repair(b'{"due_date":"2026-12-31"}').outcome, plugin.unchanged().outcome)

    def test_what_cannot_be_understood_is_rejected(self):
        for value in (b'{"due_date":"31.13.2026"}', b'{"due_date":"soon"}', b"{}", b"[]", b"{", None, b'{"due_date":"1.1.2026","due_date":"1.1.2026"}'):
            self.assertEqual(repair(value).outcome, plugin.rejected("").outcome, value)

    def test_as_a_stage_it_keeps_out_what_it_would_repair(self):
        d = Dates()
        d.configure({})
        self.assertEqual(d.process(plugin.Record(view={"due_date": "31.12.2026"})).rule, "date-form")
        self.assertEqual(d.process(plugin.Record(view={"due_date": "2026-12-31"})).rule, "")
        self.assertEqual(d.process(plugin.Record()).rule, "")


class ProtocolTest(unittest.TestCase):
    """The protocol's own file: what it writes it can read, and HTTP/2 headers come out of their compression."""

    def test_a_call_goes_through_the_messages(self):
        s = plugin.Service("acme/iso-dates", "1.0.2", "", Dates())
        self.assertEqual(s.call("/reprieve.transform.v1.RepairTransform/Configure", b"\x0a\x02{}\x10\x07"), b"")
        envelope = plugin._text(1, "q1") + plugin._bytes(7, plugin._bytes(1, b'{"due_date":"1.2.2026"}'))
        reply = s.call("/reprieve.transform.v1.RepairTransform/Repair", plugin._number(1, 9) + plugin._bytes(2, envelope))
        out = dict(plugin._fields(reply))
        result = dict(plugin._fields(out[2]))
        self.assertEqual((out[1], result[1], result[2]), (9, b"q1", 1))
        self.assertEqual(plugin._nullable(result[4]), b'{"due_date":"2026-02-01"}')

    def test_headers_are_decoded(self):
        # RFC 7541, C.4.1 and C.4.2: Huffman-coded, with entries of the dynamic table.
        h = plugin._Hpack()
        first = h.decode(bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"))
        second = h.decode(bytes.fromhex("828684be5886a8eb10649cbf"))
        self.assertEqual(first[-1], (":authority", "www.example.com"))
        self.assertEqual(second[-2:], [(":authority", "www.example.com"), ("cache-control", "no-cache")])
        self.assertEqual(len(plugin._STATIC), 62)
        self.assertEqual(len(plugin._LENGTHS), 256)


if __name__ == "__main__":
    unittest.main()
