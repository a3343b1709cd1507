package codec

import (
	"strconv"

	"github.com/hamba/avro/v2"
)

// canonicalAvro appends the parsing canonical form of a schema: what matters for reading, in a fixed order, without logical types
// (the library keeps those, so its fingerprint of a schema that has one is not that of the specification). A named type is
// written in full where it comes first, also one from a reference.
func canonicalAvro(dst []byte, s avro.Schema, seen map[string]bool) []byte {
	named := func(n avro.NamedSchema, kind string) (done bool) {
		if seen[n.FullName()] {
			dst = appendQuoted(dst, []byte(n.FullName()))
			return true
		}
		seen[n.FullName()] = true
		dst = append(appendQuoted(append(dst, `{"name":`...), []byte(n.FullName())), `,"type":"`+kind+`"`...)
		return false
	}
	switch s := s.(type) {
	case *avro.RefSchema:
		return canonicalAvro(dst, s.Schema(), seen)
	case *avro.RecordSchema:
		if named(s, "record") {
			return dst
		}
		dst = append(dst, `,"fields":[`...)
		for i, f := range s.Fields() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(append(dst, `{"name":`...), []byte(f.Name())), `,"type":`...)
			dst = append(canonicalAvro(dst, f.Type(), seen), '}')
		}
		return append(dst, "]}"...)
	case *avro.EnumSchema:
		if named(s, "enum") {
			return dst
		}
		dst = append(dst, `,"symbols":[`...)
		for i, symbol := range s.Symbols() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendQuoted(dst, []byte(symbol))
		}
		return append(dst, "]}"...)
	case *avro.FixedSchema:
		if named(s, "fixed") {
			return dst
		}
		return append(strconv.AppendInt(append(dst, `,"size":`...), int64(s.Size()), 10), '}')
	case *avro.ArraySchema:
		return append(canonicalAvro(append(dst, `{"type":"array","items":`...), s.Items(), seen), '}')
	case *avro.MapSchema:
		return append(canonicalAvro(append(dst, `{"type":"map","values":`...), s.Values(), seen), '}')
	case *avro.UnionSchema:
		dst = append(dst, '[')
		for i, branch := range s.Types() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = canonicalAvro(dst, branch, seen)
		}
		return append(dst, ']')
	}
	return appendQuoted(dst, []byte(s.Type()))
}

// crc64Avro is the CRC-64-AVRO of the specification.
func crc64Avro(text []byte) uint64 {
	const empty = 0xc15d213aa4d7a795
	fp := uint64(empty)
	for _, c := range text {
		fp ^= uint64(c)
		for range 8 {
			fp = fp>>1 ^ empty&-(fp&1)
		}
	}
	return fp
}
