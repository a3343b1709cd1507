"""Serves a Reprieve plugin in Python, with the standard library alone.

    import reprieve_plugin as plugin

    class Trim(plugin.Transform):
        def repair(self, e):
            if e.value is None:
                return plugin.rejected("a delete marker has nothing to repair")
            trimmed = e.value.strip()
            return plugin.unchanged() if trimmed == e.value else plugin.repaired(value=trimmed, changed=[""])

    if __name__ == "__main__":
        plugin.serve("acme/trim", "0.1.0", "Trims the value.", Trim())

A plugin is pure: the same envelopes and configuration give the same results, in any process and any grouping. Inside a plugin
time.time() is fixed and random is seeded, both the same in every process. Standard output belongs to the protocol: print to
standard error, and never data of a record. The protocol is described in transform.proto; this file speaks as much gRPC over
HTTP/2 as the host needs: one Unix socket, plain calls, no encryption, no compression.
"""

import json
import os
import random
import socket
import struct
import sys
import time
import traceback


# --- what an author writes ---------------------------------------------------------------------------------------------------


class Envelope:
    """One record to repair, with its original bytes. key and value are bytes, or None for null. Do not change it."""

    __slots__ = ("item", "topic", "offset", "time_ms", "time_type", "key", "value", "headers", "schema", "identity", "code")

    def __init__(self, item="", topic="", offset=0, time_ms=0, time_type="", key=None, value=None, headers=(), schema="", identity=None, code=""):
        self.item, self.topic, self.offset, self.time_ms, self.time_type = item, topic, offset, time_ms, time_type
        self.key, self.value, self.headers, self.schema, self.code = key, value, headers, schema, code
        self.identity = identity or {}


class Record:
    """One record of the live lane, as the redact stage left it. view is its decoded form (from JSON), if the stage asks for it."""

    __slots__ = ("topic", "partition", "offset", "time_ms", "time_type", "key", "value", "headers", "schema", "view")

    def __init__(self, topic="", partition=0, offset=0, time_ms=0, time_type="", key=None, value=None, headers=(), schema="", view=None):
        self.topic, self.partition, self.offset, self.time_ms, self.time_type = topic, partition, offset, time_ms, time_type
        self.key, self.value, self.headers, self.schema, self.view = key, value, headers, schema, view


class Result:
    """The answer for one envelope: made by repaired, unchanged or rejected."""

    def __init__(self, outcome, **fields):
        self.outcome, self.fields = outcome, fields


KEEP = object()  # "this stays as it was": None is a null


def repaired(value=KEEP, key=KEEP, headers=None, schema=None, changed=(), notes=()):
    """The envelope was changed. headers are all headers, (name, bytes or None); changed are JSON pointers, "key", "headers/NAME"
    or "schema"."""
    return Result(1, value=value, key=key, headers=headers, schema=schema, changed=changed, notes=notes)


def unchanged():
    """There is nothing to repair."""
    return Result(2)


def rejected(reason):
    """This record cannot be repaired: one short sentence without data of the record."""
    return Result(3, reason=reason)


class Mark:
    """The answer for one live record: made by passed or reject."""

    def __init__(self, rule="", fields=None, headers=()):
        self.rule, self.fields, self.headers = rule, fields or {}, headers


def passed(fields=None, headers=()):
    """The record goes on. fields are added to what conditions see (view.NAME): str, bool, int or float; headers are (name, bytes)."""
    return Mark(fields=fields, headers=headers)


def reject(rule):
    """The record breaks a rule, named by 1 to 64 of a-z, 0-9, "_", "-" and "."."""
    return Mark(rule=rule)


class Transform:
    """Subclass it for repairs."""

    def configure(self, config):
        """Takes the configuration, a dict, before the first record. Raise ValueError with a sentence for the user if it is wrong."""

    def repair(self, e):
        """Answers for one Envelope: repaired, unchanged or rejected."""
        raise NotImplementedError


class Stage:
    """Subclass it for a stage of the live lane; a class may be both. Set wants_view to get Record.view."""

    wants_view = False

    def configure(self, config):
        """As of Transform."""

    def process(self, r):
        """Answers for one Record: passed or reject."""
        raise NotImplementedError


def serve(name, version, doc, plugin):
    """Serves plugin, a Transform, a Stage or both, until the host ends the process. It does not return."""
    if os.environ.get("REPRIEVE_PLUGIN") != "repair-transform":
        print("This is a plugin: it is started by Reprieve. To judge it: reprieve conform FOLDER", file=sys.stderr)
        sys.exit(1)
    if "1" not in os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "1").split(","):
        print("This plugin speaks protocol 1 only", file=sys.stderr)
        sys.exit(1)
    path = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(4)
    sys.stdout.write("1|1|unix|%s|grpc\n" % path)
    sys.stdout.flush()
    sys.stdout = sys.stderr  # whatever prints from here on does no harm
    service = Service(name, version, doc, plugin)
    while True:
        conn, _ = listener.accept()
        try:
            _Connection(conn, service.call).run()
        except (_Gone, OSError):
            pass
        finally:
            conn.close()


# --- the service --------------------------------------------------------------------------------------------------------------


class Problem(Exception):
    """A gRPC status: it is about the plugin, not about a record."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status, self.text = status, text


FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 9, 12, 13


class Service:
    """The calls of the protocol over an author's plugin. For tests: call(path, bytes) -> bytes."""

    def __init__(self, name, version, doc, plugin):
        self.name, self.version, self.doc, self.plugin = name, version, doc, plugin
        self.configured = False

    def call(self, path, request):
        method = path.rsplit("/", 1)[-1]
        if path.startswith("/reprieve.transform.v1.RepairTransform/"):
            handler = {"Describe": self.describe, "Configure": self.configure, "Repair": self.repair, "Process": self.process}.get(method)
            if handler:
                try:
                    return handler(request)
                except Problem:
                    raise
                except Exception as e:  # an author's mistake costs the record, found by halving the batch
                    traceback.print_exc(file=sys.stderr)
                    raise Problem(INTERNAL, type(e).__name__)
        elif path == "/grpc.health.v1.Health/Check":
            return b"\x08\x01"  # SERVING
        raise Problem(UNIMPLEMENTED, "no such call")

    def describe(self, _):
        out = _text(1, self.name) + _text(2, self.version) + _number(3, 1) + _text(5, self.doc)
        if isinstance(self.plugin, Transform):
            out += _text(6, "transform")
        if isinstance(self.plugin, Stage):
            out += _text(6, "stage") + _number(7, 1 if self.plugin.wants_view else 0)
        return out

    def configure(self, request):
        if self.configured:
            raise Problem(FAILED_PRECONDITION, "configured already")
        config, seed, clock_ms = b"{}", 0, 0
        for field, value in _fields(request):
            if field == 1:
                config = value
            elif field == 2:
                seed = value
            elif field == 3:
                clock_ms = value
        _fix(seed, clock_ms)
        try:
            settings = json.loads(config)
            if not isinstance(settings, dict):
                raise ValueError("the configuration is not a JSON object")
            self.plugin.configure(settings)
        except ValueError as e:
            return _text(1, str(e)[:500] or "the configuration is wrong")
        self.configured = True
        return b""

    def ready(self, kind):
        if not self.configured:
            raise Problem(FAILED_PRECONDITION, "not configured")
        if not isinstance(self.plugin, kind):
            raise Problem(UNIMPLEMENTED, "not delivered")

    def repair(self, request):
        self.ready(Transform)
        out = []
        repair = self.plugin.repair
        for field, value in _fields(request):
            if field == 1:
                out.append(_number(1, value))
            elif field == 2:
                e = _envelope(value)
                out.append(_bytes(2, _result(e, repair(e))))
        return b"".join(out)

    def process(self, request):
        self.ready(Stage)
        out, topic, partition, records = [], "", 0, []
        for field, value in _fields(request):
            if field == 1:
                out.append(_number(1, value))
            elif field == 2:
                topic = value.decode()
            elif field == 3:
                partition = value
            elif field == 4:
                records.append(value)
        for r in records:
            r = _record(r, topic, partition)
            out.append(_bytes(2, _mark(r, self.plugin.process(r))))
        return b"".join(out)


def _fix(seed, clock_ms):
    """Fixes what would differ from process to process."""
    time.time = lambda: clock_ms / 1000
    time.time_ns = lambda: clock_ms * 1_000_000
    random.seed(seed)


# --- messages: protocol buffers by hand -----------------------------------------------------------------------------------------


def _varint(n):
    if n < 0x80:
        return bytes((n,))
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _number(field, n):
    return _varint(field << 3) + _varint(n & 0xFFFFFFFFFFFFFFFF) if n else b""


def _bytes(field, b):
    return _varint(field << 3 | 2) + _varint(len(b)) + b


def _text(field, s):
    return _bytes(field, s.encode()) if s else b""


def _fields(b):
    """Yields (field, value): numbers as int, everything with a length as bytes."""
    at, end = 0, len(b)
    while at < end:
        key = shift = 0
        while True:
            c = b[at]
            at += 1
            key |= (c & 0x7F) << shift
            if c < 0x80:
                break
            shift += 7
        wire = key & 7
        if wire == 2 or wire == 0:
            n = shift = 0
            while True:
                c = b[at]
                at += 1
                n |= (c & 0x7F) << shift
                if c < 0x80:
                    break
                shift += 7
            if wire == 0:
                yield key >> 3, n
            else:
                yield key >> 3, b[at : at + n]
                at += n
        elif wire == 1:
            yield key >> 3, b[at : at + 8]
            at += 8
        elif wire == 5:
            yield key >> 3, b[at : at + 4]
            at += 4
        else:
            raise Problem(INTERNAL, "a message cannot be read")


def _signed(n):
    return n - (1 << 64) if n >> 63 else n


def _nullable(b):
    for field, value in _fields(b):
        if field == 1:
            return value
    return None


def _headers(b):
    out = []
    for field, header in _fields(b):
        if field == 1:
            name, value = "", None
            for f, v in _fields(header):
                if f == 1:
                    name = v.decode()
                elif f == 2:
                    value = v
            out.append((name, value))
    return tuple(out)


_IDENTITY = ("", "consumer", "release", "tenant", "event_id", "entity", "business_id", "token", "version")


def _envelope(b):
    e = Envelope()
    for field, value in _fields(b):
        if field == 1:
            e.item = value.decode()
        elif field == 2:
            e.topic = value.decode()
        elif field == 3:
            e.offset = _signed(value)
        elif field == 4:
            e.time_ms = _signed(value)
        elif field == 5:
            e.time_type = value.decode()
        elif field == 6:
            e.key = _nullable(value)
        elif field == 7:
            e.value = _nullable(value)
        elif field == 8:
            e.headers = _headers(value)
        elif field == 9:
            e.schema = value.decode()
        elif field == 10:
            e.identity = {_IDENTITY[f]: v.decode() for f, v in _fields(value) if 0 < f < len(_IDENTITY)}
        elif field == 11:
            e.code = value.decode()
    return e


def _record(b, topic, partition):
    r = Record(topic, partition)
    for field, value in _fields(b):
        if field == 1:
            r.offset = _signed(value)
        elif field == 2:
            r.time_ms = _signed(value)
        elif field == 3:
            r.time_type = value.decode()
        elif field == 4:
            r.key = _nullable(value)
        elif field == 5:
            r.value = _nullable(value)
        elif field == 6:
            r.headers = _headers(value)
        elif field == 7:
            r.schema = value.decode()
        elif field == 8:
            r.view = json.loads(value)
    return r


def _header(name, value):
    return _text(1, name) + (b"" if value is None else _bytes(2, value))


def _result(e, r):
    if not isinstance(r, Result):
        raise TypeError("repair returned no result")
    f = r.fields
    out = _text(1, e.item) + _number(2, r.outcome)
    if r.outcome == 3:
        return out + _text(8, f["reason"][:500])
    if r.outcome == 2:
        return out
    for field, name in ((3, "key"), (4, "value")):
        b = f[name]
        if b is not KEEP:
            out += _bytes(field, b"" if b is None else _bytes(1, b))
    if f["headers"] is not None:
        out += _bytes(5, b"".join(_bytes(1, _header(n, v)) for n, v in f["headers"]))
    if f["schema"] is not None:
        out += _bytes(6, f["schema"].encode())
    report = b"".join(_bytes(1, c.encode()) for c in f["changed"]) + b"".join(_text(2, n[:500]) for n in f["notes"])
    return out + (_bytes(7, report) if report else b"")


def _mark(r, m):
    if m is None:
        m = Mark()
    out = _number(1, r.offset) + _text(2, m.rule)
    for name, value in m.fields.items():
        field = _text(1, name)
        if isinstance(value, bool):
            field += _varint(5 << 3) + _varint(int(value))
        elif isinstance(value, int):
            field += _varint(3 << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)
        elif isinstance(value, float):
            field += _varint(4 << 3 | 1) + struct.pack("<d", value)
        else:
            field += _bytes(2, str(value).encode())
        out += _bytes(3, field)
    return out + b"".join(_bytes(4, _header(n, v)) for n, v in m.headers)


# --- HTTP/2: what gRPC needs of it (RFC 9113, RFC 7541) ---------------------------------------------------------------------------


class _Gone(Exception):
    """The peer closed the connection."""


class _Connection:
    def __init__(self, conn, call):
        self.conn, self.call = conn, call
        self.buffer = b""
        self.hpack = _Hpack()
        self.window = 65535  # that the peer leaves us, for the connection
        self.initial = 65535  # for a new stream
        self.frame_most = 16384
        self.streams = {}  # id -> [path, request bytes, window]

    def run(self):
        if self.read(24) != b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":
            return
        # Large windows and frames, so that a batch comes in few pieces; no window is ever in the way.
        self.conn.sendall(_frame(4, 0, 0, struct.pack(">HIHI", 4, 0x7FFFFFFF, 5, 1 << 20)) + _frame(8, 0, 0, struct.pack(">I", 1 << 30)))
        while True:
            self.step()

    def read(self, n):
        while len(self.buffer) < n:
            more = self.conn.recv(max(65536, n - len(self.buffer)))
            if not more:
                raise _Gone()
            self.buffer += more
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def step(self):
        """Reads one frame and answers it."""
        head = self.read(9)
        size, kind, flags, stream = head[0] << 16 | head[1] << 8 | head[2], head[3], head[4], struct.unpack(">I", head[5:])[0] & 0x7FFFFFFF
        if size > 1 << 20:
            raise _Gone()
        body = self.read(size)
        if kind == 0:  # DATA
            if flags & 8:
                body = body[1 : len(body) - body[0]]
            if size:
                self.conn.sendall(_frame(8, 0, 0, struct.pack(">I", size)))
            if stream in self.streams:
                self.streams[stream][1].append(body)
                if flags & 1:
                    self.answer(stream)
        elif kind == 1:  # HEADERS
            if flags & 8:
                body = body[1 : len(body) - body[0]]
            if flags & 0x20:
                body = body[5:]
            while not flags & 4:  # CONTINUATION follows at once
                head = self.read(9)
                flags |= head[4] & 4
                body += self.read(head[0] << 16 | head[1] << 8 | head[2])
            headers = dict(self.hpack.decode(body))
            self.streams[stream] = [headers.get(":path", ""), [], self.initial]
            if flags & 1:
                self.answer(stream)
        elif kind == 3:  # RST_STREAM
            self.streams.pop(stream, None)
        elif kind == 4 and not flags & 1:  # SETTINGS
            for at in range(0, len(body) - 5, 6):
                name, value = struct.unpack(">HI", body[at : at + 6])
                if name == 4:
                    for s in self.streams.values():
                        s[2] += value - self.initial
                    self.initial = value
                elif name == 5:
                    self.frame_most = value
            self.conn.sendall(_frame(4, 1, 0, b""))
        elif kind == 6 and not flags & 1:  # PING
            self.conn.sendall(_frame(6, 1, 0, body))
        elif kind == 8:  # WINDOW_UPDATE
            more = struct.unpack(">I", body)[0] & 0x7FFFFFFF
            if stream == 0:
                self.window += more
            elif stream in self.streams:
                self.streams[stream][2] += more

    def answer(self, stream):
        path, pieces, _ = self.streams[stream]
        message = b"".join(pieces)
        try:
            if len(message) < 5 or message[0] != 0:
                raise Problem(INTERNAL, "one plain message is wanted")
            reply = self.call(path, message[5 : 5 + struct.unpack(">I", message[1:5])[0]])
        except Problem as p:
            self.conn.sendall(_frame(1, 5, stream, _OK + _literal("grpc-status", str(p.status)) + _literal("grpc-message", p.text)))
            self.streams.pop(stream, None)
            return
        self.conn.sendall(_frame(1, 4, stream, _OK))
        data = struct.pack(">BI", 0, len(reply)) + reply
        at = 0
        while at < len(data):
            if stream not in self.streams:
                return  # it was called off
            room = min(self.window, self.streams[stream][2], len(data) - at)
            if room <= 0:
                self.step()  # a WINDOW_UPDATE will come
                continue
            self.window -= room
            self.streams[stream][2] -= room
            frames = []
            for end in range(at, at + room, self.frame_most):
                frames.append(_frame(0, 0, stream, data[end : min(end + self.frame_most, at + room)]))
            at += room
            self.conn.sendall(b"".join(frames))
        self.conn.sendall(_frame(1, 5, stream, _literal("grpc-status", "0")))
        self.streams.pop(stream, None)


def _frame(kind, flags, stream, body):
    return struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body


def _literal(name, value):
    """A header that is not put into a table, as plain text."""
    name, value = name.encode(), value.encode("ascii", "replace")
    return b"\x00" + bytes((len(name),)) + name + bytes((min(len(value), 126),)) + value[:126]


_OK = b"\x88" + _literal("content-type", "application/grpc")  # 0x88: ":status: 200" of the static table

_STATIC = [("", "")] + [
    tuple(h.split("=", 1)) if "=" in h else (h, "")
    for h in (
        ":authority|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|:scheme=https|:status=200|:status=204|:status=206|"
        ":status=304|:status=400|:status=404|:status=500|accept-charset|accept-encoding=gzip, deflate|accept-language|accept-ranges|accept|"
        "access-control-allow-origin|age|allow|authorization|cache-control|content-disposition|content-encoding|content-language|"
        "content-length|content-location|content-range|content-type|cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|"
        "if-none-match|if-range|if-unmodified-since|last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|"
        "referer|refresh|retry-after|server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
    ).split("|")
]

# The lengths of the Huffman code of each byte, "A" is 5 bits; the code is canonical (RFC 7541, appendix B).
_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJBKABABABBBACCBBBABCBAABCCCCCKGJI"
    "XPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRSVVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWV"
)


def _huffman():
    code = last = 0
    table = {}
    for length, byte in sorted((ord(c) - ord("A") + 5, i) for i, c in enumerate(_LENGTHS)):
        code <<= length - last
        table[length, code] = byte
        code, last = code + 1, length
    return table


class _Hpack:
    """Decodes header blocks."""

    def __init__(self):
        self.table, self.size, self.most = [], 0, 4096
        self.codes = _huffman()

    def decode(self, b):
        at, out = 0, []
        while at < len(b):
            c = b[at]
            if c & 0x80:  # indexed
                n, at = self.integer(b, at, 7)
                out.append(self.entry(n))
                continue
            if c & 0xE0 == 0x20:  # size of the table
                self.most, at = self.integer(b, at, 5)
                self.evict()
                continue
            kept = c & 0x40
            n, at = self.integer(b, at, 6 if kept else 4)
            if n:
                name = self.entry(n)[0]
            else:
                name, at = self.string(b, at)
            value, at = self.string(b, at)
            out.append((name, value))
            if kept:
                self.table.insert(0, (name, value))
                self.size += len(name) + len(value) + 32
                self.evict()
        return out

    def evict(self):
        while self.size > self.most:
            name, value = self.table.pop()
            self.size -= len(name) + len(value) + 32

    def entry(self, n):
        return _STATIC[n] if n < len(_STATIC) else self.table[n - len(_STATIC)]

    def integer(self, b, at, bits):
        most = (1 << bits) - 1
        n = b[at] & most
        at += 1
        if n < most:
            return n, at
        shift = 0
        while True:
            n += (b[at] & 0x7F) << shift
            shift += 7
            at += 1
            if not b[at - 1] & 0x80:
                return n, at

    def string(self, b, at):
        coded = b[at] & 0x80
        n, at = self.integer(b, at, 7)
        raw, at = b[at : at + n], at + n
        if not coded:
            return raw.decode("latin-1"), at
        out, code, length = bytearray(), 0, 0
        for c in raw:
            for bit in range(7, -1, -1):
                code, length = code << 1 | c >> bit & 1, length + 1
                if (length, code) in self.codes:
                    out.append(self.codes[length, code])
                    code = length = 0
        return out.decode("latin-1"), at
