package codec

// Scratch holds what the views of one pooled batch stand on: the views themselves, where fields start, unescaped text, plans
// of editors. Views point into it and are valid until Reset. One goroutine uses it at a time; after warm-up nothing is
// allocated.
type Scratch struct {
	avro  chunks[avroView]
	json  chunks[jsonView]
	raw   chunks[rawView]
	proto chunks[protoView]

	offs  arena[uint32]
	nodes arena[jsonNode]
	text  arena[byte]

	run    run
	nav    run
	scan   jsonScan
	path   []byte
	out    []byte // reader bytes in the making
	moves  []move // of the last edit of an Avro view
	edited edited
	look   lookout
	stack  []int

	last  lastProgram
	plans []planEntry
	plan  int // next to be replaced
	trees []treeEntry
	tree  int
}

// NewScratch makes an empty scratch.
func NewScratch() *Scratch { return &Scratch{} }

// Reset forgets all views: none of them may be used any more. Learned plans stay.
func (s *Scratch) Reset() {
	s.avro.n, s.json.n, s.raw.n, s.proto.n = 0, 0, 0, 0
	s.offs.reset()
	s.edited = edited{}
	s.look.turn()
	s.nodes.reset()
	s.text.reset()
	if cap(s.scan.nodes) > maxRoom {
		s.scan.nodes, s.scan.table = nil, nil
	}
	if cap(s.run.keys) > maxRoom {
		s.run.keys, s.run.table = nil, nil
	}
	if cap(s.out) > maxRoom {
		s.out = nil
	}
}

// lastProgram is the shortcut for the usual case: the next record has the schema of the one before.
type lastProgram struct {
	d  *Decoder
	id schemaID
	p  *program
}

// chunks is a growing list whose elements never move.
type chunks[T any] struct {
	list []*[64]T
	n    int
}

func (c *chunks[T]) next() *T {
	i := c.n >> 6
	if i == len(c.list) {
		c.list = append(c.list, new([64]T))
	}
	t := &c.list[i][c.n&63]
	c.n++
	return t
}

// arena hands out slices that never move; a full block stays alive through what points into it.
type arena[T any] struct {
	free []T // length is what is in use
}

func (a *arena[T]) alloc(n int) []T {
	if cap(a.free)-len(a.free) < n {
		a.free = make([]T, 0, max(2*cap(a.free), n, 4096))
	}
	at := len(a.free)
	a.free = a.free[:at+n]
	return a.free[at : at+n : at+n]
}

// reset forgets what was handed out, and the room too when one batch needed very much.
func (a *arena[T]) reset() {
	if cap(a.free) > maxRoom {
		a.free = nil
	}
	a.free = a.free[:0]
}

// maxRoom is how many elements an arena keeps from one batch to the next.
const maxRoom = 1 << 20

// keepText copies b into the text arena.
func (s *Scratch) keepText(b []byte) []byte {
	t := s.text.alloc(len(b))
	copy(t, b)
	return t
}
