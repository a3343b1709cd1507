package kafka

/*
#cgo CFLAGS: -O2 -Wall -Wno-unused-function
#include <stdlib.h>
#include "native.h"
*/
import "C"

import (
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka" // links the library

	"reprieve.dev/pipeline"
)

// native is one client of librdkafka, below the binding of native.h. It belongs to a Source or a Sink.
type native struct{ c *C.rp_client }

// fault is an answer of the library that is not success. It is told like the errors of confluent-kafka-go.
type fault struct {
	code                    client.ErrorCode
	text                    string
	fatal, retriable, abort bool
}

func (f *fault) Error() string {
	if f.text != "" {
		return f.text
	}
	return f.code.String()
}

func (f *fault) Code() client.ErrorCode { return f.code }
func (f *fault) IsFatal() bool          { return f.fatal }
func (f *fault) IsRetriable() bool      { return f.retriable }
func (f *fault) TxnRequiresAbort() bool { return f.abort }

// clientError is an error of the library, whichever way it came.
type clientError interface {
	error
	Code() client.ErrorCode
	IsFatal() bool
	IsRetriable() bool
	TxnRequiresAbort() bool
}

// answer turns a filled rp_fault into an error, or nil.
func answer(f *C.rp_fault) error {
	if f.code == 0 {
		return nil
	}
	return &fault{code: client.ErrorCode(f.code), text: C.GoString(&f.text[0]), fatal: f.fatal != 0,
		retriable: f.retriable != 0, abort: f.abort != 0}
}

// linked tells once whether the library is the one that native.h describes.
var linked = sync.OnceValue(func() error {
	why := make([]byte, 256)
	if C.rp_check((*C.char)(unsafe.Pointer(&why[0])), C.size_t(len(why))) == 1 {
		return nil
	}
	return &fault{code: client.ErrInvalidArg, text: C.GoString((*C.char)(unsafe.Pointer(&why[0])))}
})

// openNative makes a client.
func openNative(producer bool, settings map[string]string) (*native, error) {
	if err := linked(); err != nil {
		return nil, err
	}
	words := make([]string, 0, 2*len(settings))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		words = append(words, name, settings[name])
	}
	list, free := cStrings(words)
	defer free()
	kind := C.int(0)
	if producer {
		kind = 1
	}
	var f C.rp_fault
	c := C.rp_open(kind, list, C.int(len(words)), &f)
	if c == nil {
		return nil, answer(&f)
	}
	return &native{c: c}, nil
}

// cStrings copies a list of texts into C memory.
func cStrings(words []string) (**C.char, func()) {
	list := (**C.char)(C.calloc(C.size_t(len(words)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	at := unsafe.Slice(list, len(words))
	for i, w := range words {
		at[i] = C.CString(w)
	}
	return list, func() {
		for _, w := range at {
			C.free(unsafe.Pointer(w))
		}
		C.free(unsafe.Pointer(list))
	}
}

// free ends the client and its threads; it may take as long as they need to notice.
func (n *native) free() { C.rp_free(n.c) }

// note is something that the library said by itself: a line of its log, or an error that no call answers.
type note struct {
	level int
	lost  int // notes before it that found no room
	about string
	fault
}

// said takes what was said since, oldest first: the errors, or the log.
func (n *native) said(errors bool, each func(note)) {
	which := C.int(0)
	if errors {
		which = 1
	}
	var c C.rp_note
	for C.rp_take_note(n.c, which, &c) == 1 {
		each(note{level: int(c.level), lost: int(c.lost), about: C.GoString(&c.about[0]),
			fault: fault{code: client.ErrorCode(c.code), text: C.GoString(&c.text[0]), fatal: c.fatal != 0}})
	}
}

// name is the library's own name of the client.
func (n *native) name() string { return C.GoString(C.rd_kafka_name(n.c.rk)) }

// fatal is the error that ended the client, or nil.
func (n *native) fatal() error {
	text := make([]byte, 512)
	code := C.rd_kafka_fatal_error(n.c.rk, (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text)))
	if code == 0 {
		return nil
	}
	return &fault{code: client.ErrorCode(code), text: C.GoString((*C.char)(unsafe.Pointer(&text[0]))), fatal: true}
}

// placed is a partition in a list for the library, or from it.
type placed struct {
	tp     pipeline.TP
	offset int64
	meta   string
	code   client.ErrorCode
}

// partitionList is a list in C memory.
type partitionList = *C.rd_kafka_topic_partition_list_t

func listOf(ps []placed) partitionList {
	l := C.rd_kafka_topic_partition_list_new(C.int(len(ps)))
	for i := range ps {
		p := &ps[i]
		topic := C.CString(p.tp.Topic)
		var meta *C.char
		if p.meta != "" {
			meta = C.CString(p.meta)
		}
		C.rp_list_add(l, topic, C.int32_t(p.tp.Partition), C.int64_t(p.offset), meta, C.size_t(len(p.meta)))
		C.free(unsafe.Pointer(topic))
		C.free(unsafe.Pointer(meta))
	}
	return l
}

func freeList(l partitionList) { C.rd_kafka_topic_partition_list_destroy(l) }

// readList copies a list out of C memory.
func readList(l partitionList) []placed {
	if l == nil {
		return nil
	}
	out := make([]placed, 0, int(l.cnt))
	for _, e := range unsafe.Slice(l.elems, int(l.cnt)) {
		out = append(out, placed{tp: pipeline.TP{Topic: C.GoString(e.topic), Partition: int32(e.partition)},
			offset: int64(e.offset), code: client.ErrorCode(e.err),
			meta: C.GoStringN((*C.char)(e.metadata), C.int(e.metadata_size))})
	}
	return out
}

// millis32 is a wait for the library; it is never negative, which would be for ever.
func millis32(d time.Duration) C.int { return C.int(max(0, min(d/time.Millisecond, 1<<30))) }

// live counts what the binding made and did not free yet, in the whole process.
type live struct{ clients, batches, lent, units int64 }

func counts() live {
	var c C.rp_live
	C.rp_counts(&c)
	return live{int64(c.clients), int64(c.batches), int64(c.lent), int64(c.units)}
}
