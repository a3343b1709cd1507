package codec

// Limits bound what one value may cost. A zero field means its default.
type Limits struct {
	Bytes     int64 // of a value, framing included; default 1 MiB
	Depth     int64 // of records, arrays and maps in each other; default 100
	Items     int64 // of all arrays and maps of a value together; default 1,000,000
	Expansion int64 // bytes that the value takes as JSON, estimated from below; default 8 MiB
}

// maxDepth is the most that Depth may be: recursion uses the stack of the goroutine, whose overflow cannot be recovered.
const maxDepth = 10_000

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 1 << 20
	}
	if l.Depth <= 0 {
		l.Depth = 100
	}
	l.Depth = min(l.Depth, maxDepth)
	if l.Items <= 0 {
		l.Items = 1_000_000
	}
	if l.Expansion <= 0 {
		l.Expansion = 8 << 20
	}
	return l
}
