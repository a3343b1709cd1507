package kafka

/*
#include <stdlib.h>
#include "native.h"
#cgo noescape rp_send
#cgo nocallback rp_send
#cgo noescape rp_serve
#cgo nocallback rp_serve
#cgo noescape rp_take_reports
#cgo nocallback rp_take_reports
*/
import "C"

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// unit is the messages of one Sending as the library needs them, in C memory: what it points at stands in records that
// another client of the library lent, or was copied into the unit.
type unit struct{ u *C.rp_unit }

func newUnit(id int) unit {
	u := C.rp_unit_new()
	if u == nil {
		panic("kafka: no memory for a unit")
	}
	u.id = C.int32_t(id)
	return unit{u}
}

func (u unit) free() { C.rp_unit_free(u.u) }

// bytes is what the unit keeps for copies.
func (u unit) bytes() int64 { return int64(u.u.capbytes) }

// shrink frees what one large Sending needed.
func (u unit) shrink() {
	C.free(unsafe.Pointer(u.u.bytes))
	u.u.bytes, u.u.capbytes = nil, 0
}

// open counts messages without a final answer.
func (u unit) open() *int32 { return (*int32)(unsafe.Pointer(&u.u.open)) }

func (u unit) setOpen(n int) { atomic.StoreInt32(u.open(), int32(n)) }

// answered counts one final answer and tells whether it was the last.
func (u unit) answered() bool { return atomic.AddInt32(u.open(), -1) == 0 }

// empty is where a value or key of no bytes points: nil would be null.
var empty = (*C.uint8_t)(C.calloc(1, 1))

// borrowed tells whether b is the bytes of r itself, which the batch keeps until the Sending is done.
func borrowed(b, r []byte) bool {
	return len(b) > 0 && len(b) <= len(r) && unsafe.SliceData(b) == unsafe.SliceData(r)
}

// fill describes the messages. What a record of batch has may stay where it is if lent; everything else is copied.
// False: there is no memory for it.
func (u unit) fill(n *topics, msgs []pipeline.Message, recs []pipeline.Record) bool {
	var bytes, headers int
	for i := range msgs {
		m := &msgs[i]
		k, v := own(m, recs)
		if !k {
			bytes += len(m.Key)
		}
		if !v {
			bytes += len(m.Value)
		}
		headers += len(m.Headers)
		for j := range m.Headers {
			bytes += len(m.Headers[j].Name) + len(m.Headers[j].Value)
		}
	}
	if C.rp_unit_room(u.u, C.int(len(msgs)), C.int(headers), C.int64_t(bytes)) == 0 {
		return false
	}
	w := writer{room: unsafe.Slice((*byte)(u.u.bytes), int(u.u.capbytes))}
	ds := unsafe.Slice(u.u.msgs, len(msgs))
	hs := unsafe.Slice(u.u.headers, headers)
	at := 0
	for i := range msgs {
		m, d := &msgs[i], &ds[i]
		k, v := own(m, recs)
		*d = C.rp_msg{unit: u.u, topic: n.of(m.Topic), at: C.int64_t(m.TimeMS), partition: C.int32_t(m.Partition),
			header: C.int32_t(at), headers: C.int32_t(len(m.Headers)), code: C.RP_UNANSWERED}
		d.key, d.klen = w.put(m.Key, k)
		d.val, d.vlen = w.put(m.Value, v)
		for j := range m.Headers {
			h := &hs[at]
			at++
			name, nlen := w.text(m.Headers[j].Name)
			h.name, h.nlen = (*C.char)(unsafe.Pointer(name)), nlen
			h.val, h.vlen = w.put(m.Headers[j].Value, false)
		}
	}
	return true
}

// own tells which of key and value are the record's own bytes.
func own(m *pipeline.Message, recs []pipeline.Record) (key, value bool) {
	if m.From < 0 || int(m.From) >= len(recs) {
		return false, false
	}
	r := &recs[m.From]
	return borrowed(m.Key, r.Key), borrowed(m.Value, r.Value)
}

// writer copies bytes into a unit.
type writer struct{ room []byte }

// put is where b stands for the library: as it is, or as a copy.
func (w *writer) put(b []byte, asIs bool) (*C.uint8_t, C.int32_t) {
	switch {
	case b == nil: // INV-KAFKA-NULL
		return nil, -1
	case len(b) == 0:
		return empty, 0
	case asIs:
		return (*C.uint8_t)(unsafe.SliceData(b)), C.int32_t(len(b))
	}
	n := copy(w.room, b)
	p := (*C.uint8_t)(unsafe.SliceData(w.room))
	w.room = w.room[n:]
	return p, C.int32_t(n)
}

func (w *writer) text(s string) (*C.uint8_t, C.int32_t) {
	if s == "" {
		return empty, 0
	}
	n := copy(w.room, s)
	p := (*C.uint8_t)(unsafe.SliceData(w.room))
	w.room = w.room[n:]
	return p, C.int32_t(n)
}

// topics keeps the references of the names that were written to.
type topics struct {
	n    *native
	refs map[string]topicRef
	name string // the last: messages of a Sending mostly go to one topic
	ref  topicRef
}

func (t *topics) of(name string) topicRef {
	if name == t.name && t.ref != nil {
		return t.ref
	}
	ref, known := t.refs[name]
	if !known {
		ref = t.n.topic(name)
		if ref != nil {
			t.refs[name] = ref
		}
	}
	t.name, t.ref = name, ref
	return ref
}

// send hands over the messages from..to-1 and returns the first that was not taken, and why.
func (n *native) send(u unit, from, to int) (int, error) {
	var f C.rp_fault
	next := int(C.rp_send(n.c, u.u, C.int(from), C.int(to), &f))
	if next == to {
		return to, nil
	}
	return next, answer(&f)
}

// aloft counts messages that the library has and did not report.
func (n *native) aloft() int64 { return atomic.LoadInt64((*int64)(unsafe.Pointer(&n.c.aloft))) }

// serve waits for reports and errors; true: something waits to be taken.
func (n *native) serve(wait time.Duration) bool { return C.rp_serve(n.c, millis32(wait)) != 0 }

// wake ends a serve that waits.
func (n *native) wake() { C.rd_kafka_queue_yield(n.c.q) }

// reports takes what was answered since: units that are complete, then messages that failed.
func (n *native) reports(complete func(id int), failed func(id, msg int, code client.ErrorCode)) {
	var done *C.rp_unit
	var bad *C.rp_msg
	C.rp_take_reports(n.c, &done, &bad)
	for done != nil {
		u := done
		done = u.next // before it is used again
		complete(int(u.id))
	}
	for bad != nil {
		m := bad
		bad = m.next
		at := (uintptr(unsafe.Pointer(m)) - uintptr(unsafe.Pointer(m.unit.msgs))) / unsafe.Sizeof(*m)
		failed(int(m.unit.id), int(at), client.ErrorCode(m.code))
	}
}

// acknowledged writes where the messages of a complete unit stand.
func (u unit) acknowledged(msgs []pipeline.Message) {
	ds := unsafe.Slice(u.u.msgs, len(msgs))
	for i := range ds {
		if ds[i].code == 0 {
			msgs[i].Partition, msgs[i].Offset = int32(ds[i].partition), int64(ds[i].at)
		}
	}
}

// unanswered tells whether the library never reported message i.
func (u unit) unanswered(i int) bool { return u.at(i).code == C.RP_UNANSWERED }

// refused notes that message i has no place in a topic.
func (u unit) refused(i int, code client.ErrorCode) { u.at(i).code = C.int32_t(code) }

func (u unit) at(i int) *C.rp_msg { return &unsafe.Slice(u.u.msgs, int(u.u.capmsgs))[i] }

// purge gives up what was not acknowledged; its reports follow. wait: until the library's threads have done so.
func (n *native) purge(wait bool) {
	flags := C.int(1 | 2) // queued and in flight
	if !wait {
		flags |= 4
	}
	C.rd_kafka_purge(n.c.rk, flags)
}

// flush waits for the reports of everything that was sent.
func (n *native) flush(wait time.Duration) { C.rd_kafka_flush(n.c.rk, millis32(wait)) }

// The steps of a transaction.
const (
	txInit   = 'i'
	txBegin  = 'b'
	txCommit = 'c'
	txAbort  = 'a'
)

// left is how long a call of a transaction may take: until ctx's deadline, or for ever.
func left(ctx context.Context) C.int {
	end, ok := ctx.Deadline()
	if !ok {
		return -1
	}
	return millis32(time.Until(end))
}

func (n *native) tx(ctx context.Context, step rune) error {
	var f C.rp_fault
	C.rp_tx(n.c, C.int(step), left(ctx), &f)
	return answer(&f)
}

// txOffsets adds offsets of a group to the open transaction.
func (n *native) txOffsets(ctx context.Context, ps []placed, m membership) error {
	l := listOf(ps)
	defer freeList(l)
	var f C.rp_fault
	C.rp_tx_offsets(n.c, l, unsafe.Pointer(unsafe.SliceData([]byte(m))), C.size_t(len(m)), left(ctx), &f)
	return answer(&f)
}
