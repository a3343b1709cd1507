package codec

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"reprieve.dev/pipeline"
)

// transcode is one pass from writer bytes to reader bytes.
type transcode struct {
	r     *run // over the writer's bytes, which were validated
	dst   []byte
	limit int
	offs  []int
	marks []Mark
}

// resolve makes the view read the value in the reader's shape.
func (v *avroView) resolve() *pipeline.Failure {
	p, s := v.p, v.s
	data, body := v.src, v.head
	if !p.reader.root.same {
		s.nav.free(v.src)
		c := transcode{r: &s.nav, dst: s.out[:0], limit: int(min(p.limits.Expansion, math.MaxInt32)), offs: s.stack[:0]}
		end := c.value(p.reader.root, v.head)
		s.out, s.stack = c.dst, c.offs[:0]
		if end < 0 {
			return p.failure(&s.nav)
		}
		v.mark = c.marks
		data, body = s.keepText(c.dst), 0
	}
	root := p.reader.types
	r := &s.run
	r.free(data)
	offs := s.offs.alloc(len(root.code))
	if end := r.prog(root.code, body, 0, offs); end != len(data) { // cannot be: what we wrote is of the reader's type
		return &pipeline.Failure{Code: pipeline.CodeInternal, Params: []pipeline.Param{pipeline.Str("what", "resolved record does not decode")}}
	}
	v.root, v.data, v.body, v.offs = root, data, body, offs
	return nil
}

// Marks are the enum symbols that were replaced by the reader's default.
func (v *avroView) Marks() []Mark { return v.mark }

// value appends the value at off in the reader's type and returns where the next one starts, or -1.
func (c *transcode) value(s *step, off int) int {
	if len(c.dst) > c.limit {
		return c.r.limit(pipeline.CodeLimitExpansion, off)
	}
	if s.same {
		end := c.r.value(s.w, off, 0)
		c.dst = append(c.dst, c.r.data[off:end]...)
		return end
	}
	switch s.do {
	case stepCopy:
		end := c.r.value(s.w, off, 0)
		c.dst = append(c.dst, c.r.data[off:end]...)
		return end
	case stepRecord:
		return c.record(s, off)
	case stepItems:
		return c.items(s, off)
	case stepUnion:
		b, end := c.r.varint(off)
		return c.value(s.branches[b], end)
	case stepWrap:
		c.dst = binary.AppendVarint(c.dst, int64(s.branch))
		return c.value(s.item, off)
	case stepEnum:
		return c.enum(s, off)
	case stepToFloat, stepToDouble:
		n, end := c.r.varint(off)
		if s.do == stepToFloat {
			c.dst = binary.LittleEndian.AppendUint32(c.dst, math.Float32bits(float32(n)))
		} else {
			c.dst = binary.LittleEndian.AppendUint64(c.dst, math.Float64bits(float64(n)))
		}
		return end
	case stepFloatToDouble:
		c.dst = binary.LittleEndian.AppendUint64(c.dst, math.Float64bits(float64(float32At(c.r.data, off))))
		return off + 4
	case stepToString, stepToDecimal:
		return c.checked(s, off)
	}
	c.r.code, c.r.bad, c.r.at, c.r.what = pipeline.CodeSchemaMismatch, s.w, off, s.what
	return -1
}

func (c *transcode) checked(s *step, off int) int {
	n, start := s.w.size, off
	if s.w.wire() != opFixed && s.w.op != opDecimalFixed {
		n, start = c.r.length(off)
	}
	end := start + n
	b := c.r.data[start:end]
	if s.do == stepToString {
		if !utf8.Valid(b) {
			return c.r.invalid(s.w, "UTF-8", start)
		}
	} else if c.r.decimal(s.r, start, n) < 0 {
		return -1
	}
	c.dst = append(c.dst, c.r.data[off:end]...)
	return end
}

func (c *transcode) enum(s *step, off int) int {
	n, end := c.r.varint(off)
	to := s.symbols[n]
	if to < 0 {
		if s.r.enumDef < 0 {
			c.r.code, c.r.bad, c.r.at = pipeline.CodeDecodeEnum, s.w, off
			return -1
		}
		to = s.r.enumDef
		if len(c.marks) < 100 { // enough to say so
			c.marks = append(c.marks, Mark{Path: s.r.place, Symbol: s.w.symbols[n], Default: s.r.symbols[to]})
		}
	}
	c.dst = binary.AppendVarint(c.dst, int64(to))
	return end
}

func (c *transcode) record(s *step, off int) int {
	base := len(c.offs)
	for i := range s.w.fields {
		c.offs = append(c.offs, off)
		off = c.r.value(s.w.fields[i].t, off, 0)
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.from < 0 {
			c.dst = append(c.dst, p.def...)
			continue
		}
		if c.value(p.step, c.offs[base+p.from]) < 0 {
			return -1
		}
	}
	c.offs = c.offs[:base]
	return off
}

func (c *transcode) items(s *step, off int) int {
	for {
		count, _, body := c.r.block(off)
		off = body
		c.dst = binary.AppendVarint(c.dst, count)
		if count == 0 {
			return off
		}
		if s.w.op == opArray && s.w.item.min == 0 && s.r.item.min == 0 {
			continue // both take no bytes
		}
		for ; count > 0; count-- {
			if s.w.op == opMap {
				n, start := c.r.length(off)
				c.dst = append(c.dst, c.r.data[off:start+n]...)
				off = start + n
			}
			if off = c.value(s.item, off); off < 0 {
				return -1
			}
		}
	}
}
