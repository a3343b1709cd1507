package decide

import (
	"cmp"
	"slices"

	"reprieve.dev/pipeline"
)

// Delayed is a record that waits until it is due. The record is a clone: its batch was released.
type Delayed struct {
	Due    int64 // Unix ms
	Record pipeline.Record
	bytes  int64
}

// Delay is the heap of one retry partition: the record that is due first is on top, so one that is not yet due never holds up
// one that is. It is owned by one goroutine.
type Delay struct {
	heap  []Delayed
	bytes int64
}

// Push adds a record; r must own its bytes.
func (d *Delay) Push(due int64, r pipeline.Record) {
	size := int64(len(r.Key)+len(r.Value)) + 256
	for _, h := range r.Headers {
		size += int64(len(h.Name)+len(h.Value)) + 40
	}
	d.bytes += size
	d.heap = append(d.heap, Delayed{Due: due, Record: r, bytes: size})
	for i := len(d.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !d.less(i, up) {
			break
		}
		d.heap[i], d.heap[up] = d.heap[up], d.heap[i]
		i = up
	}
}

// less orders by due time, then by offset, so that equal times keep the order of the partition.
func (d *Delay) less(i, j int) bool {
	a, b := &d.heap[i], &d.heap[j]
	return a.Due < b.Due || a.Due == b.Due && a.Record.Offset < b.Record.Offset
}

// Next is when the first record is due; false if there is none.
func (d *Delay) Next() (int64, bool) {
	if len(d.heap) == 0 {
		return 0, false
	}
	return d.heap[0].Due, true
}

// Pop appends at most limit records that are due at now to dst, in offset order.
func (d *Delay) Pop(dst []pipeline.Record, now int64, limit int) []pipeline.Record {
	from := len(dst)
	for len(d.heap) > 0 && d.heap[0].Due <= now && len(dst)-from < limit {
		dst = append(dst, d.heap[0].Record)
		d.bytes -= d.heap[0].bytes
		last := len(d.heap) - 1
		d.heap[0] = d.heap[last]
		d.heap[last] = Delayed{}
		d.heap = d.heap[:last]
		for i := 0; ; {
			c := 2*i + 1
			if c >= last {
				break
			}
			if c+1 < last && d.less(c+1, c) {
				c++
			}
			if !d.less(c, i) {
				break
			}
			d.heap[i], d.heap[c] = d.heap[c], d.heap[i]
			i = c
		}
	}
	slices.SortFunc(dst[from:], func(a, b pipeline.Record) int { return cmp.Compare(a.Offset, b.Offset) })
	return dst
}

// Due tells whether the record of an offset is not waiting, or due at now.
func (d *Delay) Due(off, now int64) bool {
	for i := range d.heap {
		if d.heap[i].Record.Offset == off {
			return d.heap[i].Due <= now
		}
	}
	return true
}

// Len is the number of waiting records.
func (d *Delay) Len() int { return len(d.heap) }

// Bytes is what they hold in memory, about.
func (d *Delay) Bytes() int64 { return d.bytes }
