package codec

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"reprieve.dev/pipeline"
)

// Imports that registered schemas use without naming them as references.
var wellKnown = map[string]string{
	"confluent/meta.proto": `syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
`,
	"confluent/type/decimal.proto": `syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
`,
}

// still is a context that never ends: compiling reads nothing from outside.
type still struct{}

// Deadline is none.
func (still) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done never closes.
func (still) Done() <-chan struct{} { return nil }

// Err is none.
func (still) Err() error { return nil }

// Value is none.
func (still) Value(any) any { return nil }

// parseProto compiles the text of a .proto file, or a base64 file descriptor, which registries give on demand.
func (s *Schema) parseProto() (err error) {
	defer func() {
		if p := recover(); p != nil { // a schema is outside data
			err = fmt.Errorf("schema cannot be compiled: %v", p)
		}
	}()
	const root = "schema.proto"
	texts := map[string]string{root: s.text}
	for _, r := range s.refs {
		texts[r.Name] = r.Text
	}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s.text)); err == nil {
		var d descriptorpb.FileDescriptorProto
		if proto.Unmarshal(raw, &d) != nil {
			return fmt.Errorf("neither a .proto text nor a descriptor")
		}
		s.proto, err = protodesc.NewFile(&d, protoregistry.GlobalFiles)
		return err
	}
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: func(path string) (io.ReadCloser, error) {
			text, ok := texts[path]
			if !ok {
				text, ok = wellKnown[path]
			}
			if !ok {
				return nil, fmt.Errorf("import %q is not registered with the schema", path)
			}
			return io.NopCloser(strings.NewReader(text)), nil
		}}),
		MaxParallelism: 1,
	}
	files, err := c.Compile(still{}, root)
	if err != nil {
		return err
	}
	s.proto = files[0]
	return nil
}

// messageAt follows message indexes: the first counts the messages of the file, the next those inside it, and so on.
func (s *Schema) messageAt(indexes []int) protoreflect.MessageDescriptor {
	list := s.proto.Messages()
	var m protoreflect.MessageDescriptor
	for _, i := range indexes {
		if i < 0 || i >= list.Len() {
			return nil
		}
		m = list.Get(i)
		list = m.Messages()
	}
	return m
}

// messageNamed finds a message by its full or bare name; an empty one is the first.
func (s *Schema) messageNamed(name string) protoreflect.MessageDescriptor {
	list := s.proto.Messages()
	if name == "" && list.Len() > 0 {
		return list.Get(0)
	}
	var find func(protoreflect.MessageDescriptors) protoreflect.MessageDescriptor
	find = func(list protoreflect.MessageDescriptors) protoreflect.MessageDescriptor {
		for i := range list.Len() {
			m := list.Get(i)
			if string(m.FullName()) == name || string(m.Name()) == name {
				return m
			}
			if in := find(m.Messages()); in != nil {
				return in
			}
		}
		return nil
	}
	return find(list)
}

// parseIndexes reads message indexes: how many, then each; the single byte 0 is the first message. Serializers write them
// as zigzag numbers; old ones wrote them plain.
func parseIndexes(b []byte, plain bool) (indexes []int, n int, f *pipeline.Failure) {
	next := func() (int, bool) {
		u, k := protowire.ConsumeVarint(b[n:])
		if k < 0 {
			return 0, false
		}
		n += k
		v := int64(u)
		if !plain {
			v = protowire.DecodeZigZag(u)
		}
		return int(v), v >= 0 && v <= 1<<20
	}
	count, ok := next()
	switch {
	case !ok:
		return nil, 0, frameFailure("message indexes", n)
	case count == 0:
		return []int{0}, n, nil
	case count > len(b)-n || count > 64:
		return nil, 0, frameFailure("message indexes", n)
	}
	for range count {
		i, ok := next()
		if !ok {
			return nil, 0, frameFailure("message indexes", n)
		}
		indexes = append(indexes, i)
	}
	return indexes, n, nil
}

// protoTags are the confluent.field_meta tags of a field.
func protoTags(f protoreflect.FieldDescriptor) (tags []string) {
	o := f.Options()
	if o == nil {
		return nil
	}
	m := o.ProtoReflect()
	if !m.IsValid() {
		return nil
	}
	m.Range(func(x protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if x.FullName() == "confluent.field_meta" {
			meta := v.Message()
			list := meta.Get(meta.Descriptor().Fields().ByName("tags")).List()
			for i := range list.Len() {
				tags = append(tags, list.Get(i).String())
			}
		}
		return true
	})
	return tags
}
