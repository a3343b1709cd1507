package plugins

import (
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// partsMost is how many fields one answer may hold, at all depths together. Empty parts are two bytes on the wire and a hundred in
// memory: what the size of an answer does not bound, this does. 512 records with 100 headers each are below it.
const partsMost = 1 << 18

// frugal reads answers that do not hold too many parts, and is otherwise the form of gRPC.
type frugal struct {
	encoding.CodecV2
	over atomic.Bool // an answer was refused
}

func newFrugal() *frugal { return &frugal{CodecV2: encoding.GetCodecV2(grpcproto.Name)} }

// Name is empty, so that requests say what they say without a codec of our own.
func (*frugal) Name() string { return "" }

// Unmarshal implements encoding.CodecV2.
func (f *frugal) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return f.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	left := partsMost
	if count(whole.ReadOnlyData(), m.ProtoReflect().Descriptor(), &left); left < 0 {
		f.over.Store(true)
		return errors.New("it holds too many parts")
	}
	return proto.Unmarshal(whole.ReadOnlyData(), m)
}

// count takes the fields of a message, and of the messages in it, from what is left. It ends where it is below nothing, or where the
// message cannot be read, which is for the decoder to say.
func count(b []byte, d protoreflect.MessageDescriptor, left *int) {
	for len(b) > 0 && *left >= 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		*left--
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return
		}
		if typ == protowire.BytesType {
			if f := d.Fields().ByNumber(num); f != nil && f.Message() != nil {
				inner, _ := protowire.ConsumeBytes(b)
				count(inner, f.Message(), left)
			}
		}
		b = b[n:]
	}
}
