package pipeline

import (
	"slices"
	"sync"
)

// Lane is where a batch came from.
type Lane uint8

// Live is a source topic, Retry the retry topic of the pipeline.
const (
	Live Lane = iota
	Retry
)

// Mark is the state of one record of a batch.
type Mark uint8

// A record is live until it fails, is held until it is due (retry lane), is parked behind a blocked key, or is skipped
// because an earlier life of the worker settled it (Checkpoint.Ahead).
const (
	MarkLive Mark = iota
	MarkFailed
	MarkHeld
	MarkParked
	MarkSkipped
)

// TargetKind says where an Out goes.
type TargetKind uint8

// A target is unset until the route stage ran.
const (
	TargetNone TargetKind = iota
	TargetTopic
	TargetCall
)

// Target is where a record leaves to. Partition -1 is murmur2 of the key, as Java producers do.
type Target struct {
	Kind      TargetKind
	Topic     string
	Partition int32
}

// Out is what would leave for one record. It starts as an alias of the record; new bytes come from Batch.Alloc.
type Out struct {
	Key, Value []byte
	Headers    []Header // the record's own, unless redact replaced some
	Add        []Header // after those
	To         Target
}

// Batch is a run of records of one partition in offset order (the retry lane may skip offsets). It is pooled: a clean batch
// touches no map and allocates nothing. One goroutine works on it at a time.
type Batch struct {
	TP     TP
	Lane   Lane
	Epoch  uint32 // assignment number: results of an older epoch are counted and dropped
	Recs   []Record
	Outs   []Out
	Views  []View // nil entries until decoded; they point into the decode stage's slot
	Policy Policy // the version that was active when the batch was begun

	keys []View // of decoded keys; nil unless keys are read
	join []Join

	mark    []Mark
	fails   []Failure
	arena   []byte
	slots   []any
	pool    *Pool
	release func(*Batch)
}

// Join is a member that an enrich stage gives the value of a record, should the value be written anew (route.encode).
type Join struct {
	Index int32
	Name  string
	JSON  []byte // never changed: several records may share it
}

// Begin makes Outs, Views and marks parallel to Recs and forgets earlier failures. The engine calls it once, before the
// first stage.
func (b *Batch) Begin(p Policy) {
	n := len(b.Recs)
	if cap(b.Outs) < n {
		b.Outs = make([]Out, n)
		b.Views = make([]View, n)
		b.mark = make([]Mark, n)
	}
	clear(b.keys)
	b.keys = b.keys[:0]
	b.Outs, b.Views, b.mark = b.Outs[:n], b.Views[:n], b.mark[:n]
	for i := range b.Recs {
		r := &b.Recs[i]
		b.Outs[i] = Out{Key: r.Key, Value: r.Value, Headers: r.Headers, Add: b.Outs[i].Add[:0], To: Target{Partition: -1}}
		b.Views[i] = nil
		b.mark[i] = MarkLive
	}
	b.fails = b.fails[:0]
	b.join = b.join[:0]
	b.arena = b.arena[:0]
	b.Policy = p
}

// Join gives the value of record i a member. Of several of one name the last one counts.
func (b *Batch) Join(i int, name string, json []byte) {
	b.join = append(b.join, Join{int32(i), name, json})
}

// Joins are the members that were given, by record, those of a record in their order.
func (b *Batch) Joins() []Join {
	slices.SortStableFunc(b.join, func(x, y Join) int { return int(x.Index - y.Index) })
	return b.join
}

// KeyView is the decoded key of record i; nil for a null key, and where keys are not read.
func (b *Batch) KeyView(i int) View {
	if i < len(b.keys) {
		return b.keys[i]
	}
	return nil
}

// SetKeyView notes the decoded key of record i. The decode stage only.
func (b *Batch) SetKeyView(i int, v View) {
	for len(b.keys) <= i {
		b.keys = append(b.keys, nil)
	}
	b.keys[i] = v
}

// Len is the number of records.
func (b *Batch) Len() int { return len(b.Recs) }

// Live tells whether record i still goes on: a stage skips the others.
func (b *Batch) Live(i int) bool { return b.mark[i] == MarkLive }

// Mark is the state of record i.
func (b *Batch) Mark(i int) Mark { return b.mark[i] }

// Hold takes record i out of this pass: not failed, not settled. The engine only.
func (b *Batch) Hold(i int) { b.mark[i] = MarkHeld }

// Unhold brings a held record back. The engine only.
func (b *Batch) Unhold(i int) { b.mark[i] = MarkLive }

// Skip takes record i out because it is settled already. The engine only.
func (b *Batch) Skip(i int) { b.mark[i] = MarkSkipped }

// Failures is sparse and ascending by Index; empty for a clean batch.
func (b *Batch) Failures() []Failure { return b.fails }

// Failure returns the failure of record i, or nil.
func (b *Batch) Failure(i int) *Failure {
	lo, hi := 0, len(b.fails)
	for lo < hi {
		m := (lo + hi) / 2
		if int(b.fails[m].Index) < i {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(b.fails) && int(b.fails[lo].Index) == i {
		return &b.fails[lo]
	}
	return nil
}

// Fail records why record i cannot go on. The first failure of a record wins; later stages skip it. Bytes in f must not be
// borrowed.
func (b *Batch) Fail(i int, f Failure) {
	if b.mark[i] != MarkLive {
		return
	}
	b.mark[i] = MarkFailed
	f.Index = int32(i)
	at := len(b.fails)
	for at > 0 && b.fails[at-1].Index > f.Index {
		at--
	}
	b.fails = append(b.fails, Failure{})
	copy(b.fails[at+1:], b.fails[at:])
	b.fails[at] = f
}

// Alloc returns n bytes that live as long as the batch. It moves nothing already handed out.
func (b *Batch) Alloc(n int) []byte {
	if cap(b.arena)-len(b.arena) < n {
		size := 2 * cap(b.arena)
		if size < 64<<10 {
			size = 64 << 10
		}
		if size < n {
			size = n
		}
		b.arena = make([]byte, 0, size) // the old one stays alive through what points into it
	}
	at := len(b.arena)
	b.arena = b.arena[:at+n]
	return b.arena[at : at+n : at+n]
}

// AllocTail returns free arena space of at least n bytes with length 0, to append to. Keep makes what was appended
// permanent; without Keep it is scratch. Only one tail is open at a time.
func (b *Batch) AllocTail(n int) []byte {
	if cap(b.arena)-len(b.arena) < n {
		b.Alloc(n)
		b.arena = b.arena[:len(b.arena)-n]
	}
	return b.arena[len(b.arena):len(b.arena):cap(b.arena)]
}

// Keep makes the bytes that were appended to the open tail permanent and returns them. Bytes that outgrew the tail are the
// caller's own already.
func (b *Batch) Keep(tail []byte) []byte {
	n := len(tail)
	if n > 0 && cap(b.arena)-len(b.arena) >= n {
		room := b.arena[len(b.arena) : len(b.arena)+1]
		if &room[0] == &tail[0] {
			b.arena = b.arena[:len(b.arena)+n]
		}
	}
	return tail[:n:n]
}

// Release hands the batch back to where it came from. The engine only, once every record is settled.
func (b *Batch) Release() {
	if f := b.release; f != nil {
		b.release = nil
		f(b)
	}
	if b.pool != nil {
		b.pool.put(b)
	}
}

// Lend says that the bytes of the records stand outside of Go's memory, lent by the source: they stay where they are until
// Release, which calls giveBack once, before the batch returns to its pool.
func (b *Batch) Lend(giveBack func(*Batch)) { b.release = giveBack }

// Lent tells whether the records' bytes are lent (Lend): a sink of the same library may send them from where they stand.
func (b *Batch) Lent() bool { return b.release != nil }

// Layout collects the slots that the stages of one pipeline want in each batch. Build stages first, then make the Pool.
type Layout struct{ makers []func() any }

// Slot is a stage's own scratch in every pooled batch: made once for a batch, reused, never shared by two batches in work.
type Slot[T any] struct{ n int }

// NewSlot reserves a slot; make builds its content once for each pooled batch.
func NewSlot[T any](l *Layout, make func() *T) Slot[T] {
	l.makers = append(l.makers, func() any { return make() })
	return Slot[T]{n: len(l.makers) - 1}
}

// Of is the slot's content in b.
func (s Slot[T]) Of(b *Batch) *T { return b.slots[s.n].(*T) }

// Pool recycles batches of one layout. It is safe for concurrent use.
type Pool struct {
	layout *Layout
	mu     sync.Mutex
	free   []*Batch
}

// NewPool makes a pool; the layout must be complete.
func NewPool(l *Layout) *Pool { return &Pool{layout: l} }

// Get returns an empty batch.
func (p *Pool) Get() *Batch {
	p.mu.Lock()
	var b *Batch
	if n := len(p.free); n > 0 {
		b, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if b == nil {
		b = &Batch{pool: p, slots: make([]any, len(p.layout.makers))}
		for i, m := range p.layout.makers {
			b.slots[i] = m()
		}
	}
	return b
}

func (p *Pool) put(b *Batch) {
	clear(b.Recs) // drop what was borrowed
	clear(b.Views)
	clear(b.keys)
	b.keys = b.keys[:0]
	clear(b.join)
	b.join = b.join[:0]
	for i := range b.Outs {
		add := b.Outs[i].Add
		clear(add[:cap(add)])
		b.Outs[i] = Out{Add: add[:0]}
	}
	clear(b.fails)
	b.Recs, b.fails, b.arena, b.Policy = b.Recs[:0], b.fails[:0], b.arena[:0], nil
	p.mu.Lock()
	p.free = append(p.free, b)
	p.mu.Unlock()
}
