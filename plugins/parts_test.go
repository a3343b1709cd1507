package plugins

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"reprieve.dev/plugins/wire"
)

func TestAnAnswerOfTooManyPartsIsNotBuilt(t *testing.T) {
	nested := func(num protowire.Number, inner []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), inner)
	}
	many := bytes.Repeat([]byte{0x12, 0}, partsMost+1) // field 2, of no bytes
	for name, c := range map[string]struct {
		data []byte
		over bool
	}{
		"results":                {many, true},
		"changed in one report":  {nested(2, nested(7, bytes.Repeat([]byte{0x0a, 0}, partsMost))), true},
		"headers in many pieces": {bytes.Repeat(nested(2, nested(5, []byte{0x0a, 0})), partsMost/3+1), true},
		"unknown fields":         {bytes.Repeat([]byte{0x7a, 0}, partsMost+1), true},
		"as many as may be":      {many[:2*partsMost], false},
		"one large value":        {nested(2, nested(4, nested(1, many))), false},
		"nothing":                {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFrugal()
			m := &wire.RepairReply{}
			err := f.Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.data)}, m)
			if (err != nil) != c.over || f.over.Load() != c.over {
				t.Fatalf("%v, refused %v", err, f.over.Load())
			}
			if c.over && len(m.Results) > 0 {
				t.Error("it was built")
			}
		})
	}
	t.Run("an honest answer is read as it is", func(t *testing.T) {
		want := &wire.RepairReply{Batch: 7, Results: []*wire.Result{{Item: "q1", Outcome: wire.Outcome_REPAIRED, Value: &wire.Nullable{Value: []byte("v")}}}}
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := &wire.RepairReply{}
		if err := newFrugal().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got); err != nil || !proto.Equal(got, want) {
			t.Fatal(err, got)
		}
	})
}
