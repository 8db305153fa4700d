package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// protobufCheck finds the message that values are of, by its full name, or the
// first of the file; index is the path to it.
func protobufCheck(ctx context.Context, text string, parts []part, name string) (index []int, check func([]byte) error, err error) {
	const main = "schema.proto"
	files := map[string]string{main: text}
	for _, p := range parts {
		files[p.name] = p.text
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)}),
	}
	compiled, err := compiler.Compile(ctx, main)
	if err != nil {
		return nil, nil, err
	}
	file := compiled[0]
	message := protoreflect.MessageDescriptor(nil)
	if name == "" && file.Messages().Len() > 0 {
		message = file.Messages().Get(0)
	} else if found, ok := file.FindDescriptorByName(protoreflect.FullName(name)).(protoreflect.MessageDescriptor); ok {
		message = found
	}
	if message == nil {
		return nil, nil, fmt.Errorf("it has no message %q (schema-message); its own are %s", name, strings.Join(messagesOf(file), ", "))
	}
	for d := protoreflect.Descriptor(message); d != nil; d = d.Parent() {
		if _, ok := d.(protoreflect.FileDescriptor); ok {
			break
		}
		index = append(index, d.Index())
	}
	slices.Reverse(index)
	return index, func(value []byte) error {
		m := dynamicpb.NewMessage(message)
		if err := proto.Unmarshal(value, m); err != nil {
			return err
		}
		return unknownField(m)
	}, nil
}

func messagesOf(file protoreflect.FileDescriptor) (names []string) {
	for i := range file.Messages().Len() {
		names = append(names, string(file.Messages().Get(i).FullName()))
	}
	return names
}

// unknownField: bytes of any message parse as any other; what the schema does not
// have, or has in another type, is among the unknown fields.
func unknownField(m protoreflect.Message) error {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return fmt.Errorf("its field %d is not in message %s, or of another type", number, m.Descriptor().FullName())
	}
	var found error
	visit := func(inner protoreflect.Message) bool {
		found = unknownField(inner)
		return found == nil
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { return visit(v.Message()) })
		case field.IsMap(), field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				if !visit(v.List().Get(i).Message()) {
					break
				}
			}
		default:
			visit(v.Message())
		}
		return found == nil
	})
	return found
}
