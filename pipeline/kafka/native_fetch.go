package kafka

/*
#include <stdlib.h>
#include "native.h"
#cgo noescape rp_fetch
#cgo nocallback rp_fetch
#cgo noescape rp_release
#cgo nocallback rp_release
*/
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// topicRef is a topic of the library, as a key.
type topicRef = *C.rd_kafka_topic_t

// topic is the reference of a name, nil if no topic can have it. It stays the same until free.
func (n *native) topic(name string) topicRef {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.rp_topic(n.c, c)
}

// place is a partition as the library names it.
type place struct {
	topic     topicRef
	partition int32
}

// span is consecutive records of one partition in a fetch.
type span struct {
	place
	from, n int32
}

// keepTopic makes a reference that came with records last until free, and tells its name.
func (n *native) keepTopic(t topicRef) string {
	name := C.GoString(C.rd_kafka_topic_name(t))
	n.topic(name)
	return name
}

// fetched is one fetch: up to a batch of records in memory that the library lent, until every loan of it was given back.
type fetched struct {
	b       *C.rp_batch
	open    atomic.Int32      // loans
	headers []pipeline.Header // of all records; they point into what was lent
}

// loan is the part of a fetch that went into one pipeline.Batch. It is given back by Batch.Release, or when the batch was
// forgotten and the garbage collector found it: memory of the library is never lost.
type loan struct {
	*lending
	release func(*pipeline.Batch)
}

// lending is what a loan stands for, apart from it so that it outlives it.
type lending struct {
	from *vault
	f    *fetched
	runs []span
}

// vault keeps the fetches and loans of one Source, and the client open as long as anything is lent. It is safe for
// concurrent use: batches are released by whoever has them.
type vault struct {
	mu     sync.Mutex
	n      *native
	max    int // records of a fetch
	free   []*fetched
	loans  []*loan
	lent   int  // fetches with an open loan, or being filled
	closed bool // nothing is fetched any more
	names  map[string]string
}

// keptFetches is how many empty fetches wait to be used again.
const keptFetches = 64

// knownNames is how many header names are kept as text; records with more different ones cost an allocation a name.
const knownNames = 1024

func newVault(n *native, max int) *vault { return &vault{n: n, max: max, names: map[string]string{}} }

// take returns an empty fetch with one open loan, the filler's own.
func (v *vault) take() *fetched {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lent++
	var f *fetched
	if n := len(v.free); n > 0 {
		f, v.free = v.free[n-1], v.free[:n-1]
	} else {
		f = &fetched{b: C.rp_batch_new(C.int(v.max))}
		if f.b == nil {
			panic("kafka: no memory for a batch")
		}
	}
	f.open.Store(1)
	return f
}

// loan returns one for f with no record yet.
func (v *vault) loan(f *fetched) *loan {
	f.open.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.loans); n > 0 {
		l := v.loans[n-1]
		v.loans = v.loans[:n-1]
		l.f = f
		return l
	}
	l := &loan{lending: &lending{from: v, f: f}}
	l.release = func(*pipeline.Batch) {
		l.giveBack()
		v.mu.Lock()
		if len(v.loans) < 4*keptFetches && !v.closed {
			v.loans = append(v.loans, l)
		}
		v.mu.Unlock()
	}
	runtime.AddCleanup(l, (*lending).giveBack, l.lending)
	return l
}

// giveBack returns what a loan holds to the library. Nothing may point into it any more.
func (l *lending) giveBack() {
	f := l.f
	if f == nil {
		return
	}
	for _, r := range l.runs {
		f.release(r)
	}
	l.runs, l.f = l.runs[:0], nil
	l.from.done(f)
}

// done ends one loan of f; the last makes f empty.
func (v *vault) done(f *fetched) {
	if f.open.Add(-1) > 0 {
		return
	}
	clear(f.headers)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lent--
	if v.closed || len(v.free) >= keptFetches {
		C.rp_batch_free(f.b)
	} else {
		v.free = append(v.free, f)
	}
	v.endIfEmpty()
}

// close lets the client go once nothing is lent any more: the library must not free what records still stand in.
func (v *vault) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, f := range v.free {
		C.rp_batch_free(f.b)
	}
	v.free, v.loans = nil, nil
	v.endIfEmpty()
}

// endIfEmpty frees the client of a closed vault. mu is held.
func (v *vault) endIfEmpty() {
	if !v.closed || v.lent > 0 || v.n == nil {
		return
	}
	n := v.n
	v.n = nil
	n.free()
}

// fetch waits up to wait for a first record and takes what else lies ready.
func (v *vault) fetch(f *fetched, wait time.Duration) error {
	if n := C.rp_fetch(v.n.c, f.b, millis32(wait)); n < 0 {
		return &fault{code: client.ErrorCode(n), text: "no memory for the headers of a batch", fatal: true}
	}
	return nil
}

// spans are what was fetched, in the order in which it came (an iterator).
func (f *fetched) spans(yield func(span) bool) {
	for _, r := range unsafe.Slice(f.b.runs, int(f.b.nruns)) {
		if !yield(span{place: place{r.topic, int32(r.partition)}, from: int32(r.from), n: int32(r.n)}) {
			return
		}
	}
}

// release gives records back that nobody borrowed.
func (f *fetched) release(r span) { C.rp_release(f.b, C.int(r.from), C.int(r.n)) }

// records are the library's descriptions of a span.
func (f *fetched) records(r span) []C.rp_record {
	return unsafe.Slice(f.b.records, int(f.b.n))[r.from : r.from+r.n]
}

// describe makes room for the headers of the whole fetch and fills it.
func (v *vault) describe(f *fetched) {
	n := int(f.b.nheaders)
	if n == 0 {
		return
	}
	if cap(f.headers) < n {
		f.headers = make([]pipeline.Header, n, n+n/2)
	}
	f.headers = f.headers[:n]
	for i, h := range unsafe.Slice(f.b.headers, n) {
		f.headers[i] = pipeline.Header{Name: v.text(unsafe.Slice((*byte)(unsafe.Pointer(h.name)), int(h.nlen))), Value: lentBytes(h.val, h.vlen)}
	}
}

// text is a header's name as Go memory: names repeat, and are kept longer than records.
func (v *vault) text(b []byte) string {
	if s, ok := v.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(v.names) < knownNames {
		v.names[s] = s
	}
	return s
}

// record is one record; its bytes are lent.
func (f *fetched) record(r *C.rp_record) pipeline.Record {
	out := pipeline.Record{Offset: int64(r.offset), TimeMS: int64(r.time), TimeType: pipeline.TimeType(r.time_type),
		Key: lentBytes(r.key, r.klen), Value: lentBytes(r.val, r.vlen)} // INV-KAFKA-NULL
	if r.headers > 0 {
		at, end := int(r.header), int(r.header+r.headers)
		out.Headers = f.headers[at:end:end]
	}
	return out
}

// lentBytes is memory of the library as a slice without room to grow; -1 is null.
func lentBytes(p *C.uint8_t, n C.int32_t) []byte {
	if n < 0 {
		return nil
	}
	return unsafe.Slice((*byte)(p), int(n))
}
