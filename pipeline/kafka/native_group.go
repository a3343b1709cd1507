package kafka

/*
#include <stdlib.h>
#include "native.h"
*/
import "C"

import (
	"sync/atomic"
	"time"
	"unsafe"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// offsetBeginning is where a partition without a checkpoint starts.
const offsetBeginning = int64(client.OffsetBeginning)

// told tells whether something was recorded since it was asked last. It crosses nothing.
func (n *native) told() bool {
	return atomic.SwapInt32((*int32)(unsafe.Pointer(&n.c.told)), 0) != 0
}

func (n *native) subscribe(topics []string) error {
	ps := make([]placed, 0, len(topics))
	for _, t := range topics {
		ps = append(ps, placed{tp: pipeline.TP{Topic: t, Partition: -1}})
	}
	l := listOf(ps)
	defer freeList(l)
	var f C.rp_fault
	C.rp_fault_code(&f, C.rd_kafka_subscribe(n.c.rk, l))
	return answer(&f)
}

// change takes the oldest change of the assignment that was not taken yet, or nil.
func (n *native) change() *rebalance {
	ch := C.rp_take_change(n.c)
	if ch == nil {
		return nil
	}
	defer C.rp_change_free(ch)
	r := &rebalance{kind: revoked, tps: readList(ch.list), coop: ch.cooperative != 0}
	switch {
	case ch.assign != 0:
		r.kind = assigned
	case ch.lost != 0:
		r.kind = lost
	}
	return r
}

// how an assignment is answered.
type how int

const (
	less  how = iota - 1 // give back, incrementally
	whole                // the whole assignment; none gives everything back
	more                 // take, incrementally
)

// assign answers a change of the assignment.
func (n *native) assign(ps []placed, h how) error {
	var l partitionList
	if h != whole || len(ps) > 0 {
		l = listOf(ps)
		defer freeList(l)
	}
	var f C.rp_fault
	C.rp_assign(n.c, l, C.int(h), &f)
	return answer(&f)
}

// committed reads the group's offsets of partitions; -1001 is none.
func (n *native) committed(ps []placed, wait time.Duration) ([]placed, error) {
	l := listOf(ps)
	defer freeList(l)
	var f C.rp_fault
	C.rp_fault_code(&f, C.rd_kafka_committed(n.c.rk, l, millis32(wait)))
	if err := answer(&f); err != nil {
		return nil, err
	}
	out := readList(l)
	return out, firstOf(out)
}

// firstOf is the error of the first partition that has one.
func firstOf(ps []placed) error {
	for i := range ps {
		if ps[i].code != client.ErrNoError {
			return &fault{code: ps[i].code}
		}
	}
	return nil
}

// pause stops reading partitions, or goes on.
func (n *native) pause(tps []pipeline.TP, stop bool) error {
	ps := make([]placed, 0, len(tps))
	for _, tp := range tps {
		ps = append(ps, placed{tp: tp})
	}
	l := listOf(ps)
	defer freeList(l)
	var f C.rp_fault
	if stop {
		C.rp_fault_code(&f, C.rd_kafka_pause_partitions(n.c.rk, l))
	} else {
		C.rp_fault_code(&f, C.rd_kafka_resume_partitions(n.c.rk, l))
	}
	return answer(&f)
}

// seek sets where a partition is read next. It waits for the library's own thread only.
func (n *native) seek(p placed) error {
	l := listOf([]placed{p})
	defer freeList(l)
	var f C.rp_fault
	C.rp_fault_of(&f, C.rd_kafka_seek_partitions(n.c.rk, l, -1))
	if err := answer(&f); err != nil {
		return err
	}
	return firstOf(readList(l))
}

// commit commits offsets and waits for the broker. topic is which one was refused, if one alone was.
func (n *native) commit(ps []placed) (topic string, err error) {
	l := listOf(ps)
	defer freeList(l)
	var f C.rp_fault
	name := make([]byte, 256)
	C.rp_commit(n.c, l, &f, (*C.char)(unsafe.Pointer(&name[0])), C.size_t(len(name)))
	if err = answer(&f); err == nil {
		return "", nil
	}
	return C.GoString((*C.char)(unsafe.Pointer(&name[0]))), err
}

// membership is a group membership in the library's own serial form: it outlives the consumer.
type membership []byte

// group is the membership as it is now; nil: none.
func (n *native) group() (membership, error) {
	var f C.rp_fault
	var p unsafe.Pointer
	var size C.size_t
	C.rp_group(n.c, &p, &size, &f)
	if p == nil {
		return nil, answer(&f)
	}
	defer C.rd_kafka_mem_free(nil, p)
	return C.GoBytes(p, C.int(size)), nil
}

// leave leaves the group.
func (n *native) leave(patience time.Duration) error {
	var f C.rp_fault
	C.rp_leave(n.c, millis32(patience), &f)
	return answer(&f)
}
