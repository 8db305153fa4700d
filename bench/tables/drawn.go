package main

import (
	"strings"

	"github.com/walstream/walstream/internal/pgtypes"
)

// Types of columns that cannot have any: those that a column of such a part may
// change between.

// texts are types that hold such texts.
func texts(binary bool, values ...string) (all []columnType) {
	names := []string{"text", "varchar(249)", "public.citext"}
	if binary {
		names = names[:2]
	}
	for _, name := range names {
		t := plainType(pgtypes.Kind{Name: name})
		for _, v := range values {
			t.values = append(t.values, pgtypes.Literal(v))
		}
		all = append(all, t)
	}
	return all
}

func plainTypes(all ...pgtypes.Kind) (types []columnType) {
	for _, k := range all {
		types = append(types, plainType(k))
	}
	return types
}

// fitTypes make part of a topic's name, of a URI and of an id: their texts are
// never empty. The first two have few values, which bounds the topics. All have
// a binary format that walstream reads.
var fitTypes = plainTypes(
	pgtypes.Kind{Name: "text", Values: []string{"a", "B-b", "x.y_1"}},
	pgtypes.Kind{Name: "bool", Values: []string{"true", "false"}},
	pgtypes.Kind{Name: "varchar(20)", Values: []string{"a", "0"}},
	pgtypes.Kind{Name: "int4", Values: []string{"0", "-2147483648"}},
	pgtypes.Kind{Name: "int8", Values: []string{"9223372036854775807"}},
	pgtypes.Kind{Name: "uuid", Values: []string{"0F8FAD5B-D9CB-469F-A165-70867728950E"}},
	pgtypes.Kind{Name: "char(6)", Values: []string{"ab"}},
)

// attributeTypes have texts that an attribute of a CloudEvent can have, an empty
// one among them.
var attributeTypes = append(plainTypes(
	pgtypes.Kind{Name: "text", Values: []string{"", "größe €😀", ` "quoted" \ `}},
	pgtypes.Named("timestamptz"), pgtypes.Named("numeric"), pgtypes.Named("interval"), pgtypes.Named("inet"), pgtypes.Named("public.mood"),
	pgtypes.Named("json"), pgtypes.Named("xml"),
), fitTypes...)

var (
	partitionTypes = plainTypes(partitionKind("int2"), partitionKind("int4"), partitionKind("int8"))
	timestampTypes = plainTypes(timestampKind("timestamp"), timestampKind("timestamptz"))
)

func partitionKind(name string) pgtypes.Kind {
	return pgtypes.Kind{Name: name, Values: []string{"0", "1", "2"}}
}

func timestampKind(name string) pgtypes.Kind {
	return pgtypes.Kind{Name: name, Values: []string{"1970-01-01 00:00:00", "2001-02-03 04:05:06.789999", "2026-03-04 05:06:07.5"}}
}

// Headers as an object, in any form that holds one. A name of ours is dropped.
var (
	objects = []string{
		`{}`, `{"a": "b"}`, `{"n":12345678901234567890.0001, "t" :true, "f":null, "o":{"x": [1,  2]}, "e":"é€\n\"😀\\"}`, `{"walstream-position":"no", "x":""}`,
		`{"traceparent":"00-aa-bb-01", "table":"not ours"}`, `{"ce_type":"q", "Content-Type":"w", "CE_x":1, "ce":2}`, `{"\u00e9\ud83d\ude00":"\u0041\/\t"}`,
		`{"a, b":"}", "c=>d":"{", "\"":"\\"}`, `{"long":"` + strings.Repeat("long é ", 500) + `"}`, `{"":"no name"}`,
	}
	repeating  = []string{`{"a":1,"a":"2", "a":null}`, "\n { \"a\"\t:\r\"b\" } "}
	hstores    = []string{``, `"a"=>"1", "b c"=>NULL`, `"q\"\\ =>,"=>"v\"\\,NULL", x=>""`, `"NULL"=>"NULL", "walstream-x"=>"1"`, `traceparent=>"00-cc-dd-01", ce_id=>2`, `é😀=>"{a}"`}
	pairArrays = []string{`{}`, `{a,b}`, `{{a,b},{"c d",NULL}}`, `[0:1]={a,b}`, `{"NULL","null","q\"\\","{,} "}`, `{walstream-event-id,no,traceparent,00-ee-ff-01}`, `{"",""}`, `{é😀,"content-type"}`}
)

// pairs is the base of types that headers are spread from in pairs.
const pairs = "text[]"

// spreadForms are the types that headers are spread from.
func spreadForms(binary bool) []columnType {
	all := append(texts(true, append(repeating, objects...)...)[:1], plainTypes(
		pgtypes.Kind{Name: "json", Values: append(repeating, objects...)},
		pgtypes.Kind{Name: "jsonb", Values: append(repeating, objects...)},
	)...)
	if binary {
		return all
	}
	for _, name := range []string{"text[]", "varchar(100)[]"} {
		t := plainType(pgtypes.Kind{Name: name, Values: pairArrays})
		t.base = pairs
		all = append(all, t)
	}
	return append(all, plainTypes(
		pgtypes.Kind{Name: "public.hstore", Values: hstores},
		pgtypes.Kind{Name: "public.citext", Values: objects},
	)...)
}
