package outbox

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/walstream/walstream/pkg/decode"
)

// OIDs of built-in types; they never change.
// https://github.com/postgres/postgres/blob/master/src/include/catalog/pg_type.dat
const (
	oidBool         = 16
	oidBytea        = 17
	oidName         = 19
	oidInt8         = 20
	oidInt2         = 21
	oidInt4         = 23
	oidText         = 25
	oidJSON         = 114
	oidFloat4       = 700
	oidFloat8       = 701
	oidInet         = 869
	oidTextArray    = 1009
	oidBPCharArray  = 1014
	oidVarcharArray = 1015
	oidBPChar       = 1042
	oidVarchar      = 1043
	oidTimestamp    = 1114
	oidTimestamptz  = 1184
	oidNumeric      = 1700
	oidUUID         = 2950
	oidJSONB        = 3802
)

// Reasons a value is refused.
var (
	errUnchanged = errors.New("PostgreSQL did not send the value")
	errMalformed = errors.New("the value is malformed for its type")
	errHex       = errors.New("the bytea is not in hex format: bytea_output was changed on walstream's session")
)

func isText(oid uint32) bool {
	switch oid {
	case oidText, oidVarchar, oidBPChar, oidName:
		return true
	}
	return false
}

func isJSON(oid uint32) bool { return oid == oidJSON || oid == oidJSONB }

func isInt(oid uint32) bool {
	return oid == oidInt2 || oid == oidInt4 || oid == oidInt8
}

func isTimestamp(oid uint32) bool { return oid == oidTimestamptz || oid == oidTimestamp }

// binaryText reports whether render writes the text of a type's binary format.
func binaryText(oid uint32) bool {
	return isText(oid) || isJSON(oid) || isInt(oid) ||
		oid == oidBytea || oid == oidBool || oid == oidUUID
}

// render appends to scratch, or returns as it stands, a value as records carry
// it: bytea raw, all else as text. NULL is nil, and nothing else is.
func render(v decode.Value, oid uint32, scratch []byte) (text, grown []byte, err error) {
	switch v.Format {
	case decode.ValueNull:
		return nil, scratch, nil
	case decode.ValueText:
		return renderText(v.Data, oid, scratch)
	case decode.ValueBinary:
		return renderBinary(v.Data, oid, scratch)
	}
	return nil, scratch, errUnchanged
}

func renderText(data []byte, oid uint32, scratch []byte) (text, grown []byte, err error) {
	switch oid {
	case oidBytea:
		if len(data) < 2 || data[0] != '\\' || data[1] != 'x' {
			return nil, scratch, errHex
		}
		start := len(scratch)
		if scratch, err = hex.AppendDecode(scratch, data[2:]); err != nil {
			return nil, scratch[:start], errMalformed
		}
		return since(scratch, start), scratch, nil
	case oidBool:
		if len(data) != 1 {
			return nil, scratch, errMalformed
		}
		return boolText(data[0] == 't'), scratch, nil
	case oidBPChar:
		return trimmed(data), scratch, nil
	case oidInet:
		start := len(scratch)
		scratch = appendInet(scratch, data)
		return since(scratch, start), scratch, nil
	}
	return notNil(data), scratch, nil
}

func renderBinary(data []byte, oid uint32, scratch []byte) (text, grown []byte, err error) {
	start := len(scratch)
	switch oid {
	case oidJSONB:
		if len(data) < 1 || data[0] != 1 {
			return nil, scratch, errMalformed // of a version we do not know
		}
		return data[1:], scratch, nil
	case oidBool:
		if len(data) != 1 {
			return nil, scratch, errMalformed
		}
		return boolText(data[0] != 0), scratch, nil
	case oidInt2, oidInt4, oidInt8:
		n, ok := binaryInt(data)
		if !ok {
			return nil, scratch, errMalformed
		}
		scratch = strconv.AppendInt(scratch, n, 10)
		return since(scratch, start), scratch, nil
	case oidUUID:
		if len(data) != 16 {
			return nil, scratch, errMalformed
		}
		scratch = appendUUID(scratch, data)
		return since(scratch, start), scratch, nil
	case oidBPChar:
		return trimmed(data), scratch, nil
	}
	if !binaryText(oid) {
		return nil, scratch, ErrTextNeeded
	}
	return notNil(data), scratch, nil
}

// since is what was appended; its capacity is cut, so that nobody appends over
// what comes next.
func since(scratch []byte, start int) []byte { return scratch[start:len(scratch):len(scratch)] }

func notNil(b []byte) []byte {
	if b == nil {
		return empty
	}
	return b
}

var (
	empty               = []byte{}
	textTrue, textFalse = []byte("true"), []byte("false")
	textNull            = []byte("null")
)

// boolText is bool::text; the type's own output would be t and f.
func boolText(v bool) []byte {
	if v {
		return textTrue
	}
	return textFalse
}

// trimmed is char(n)::text, which drops the padding that the type's own output
// has.
func trimmed(data []byte) []byte { return notNil(bytes.TrimRight(data, " ")) }

// appendInet is inet::text, which writes the length of a single address's
// network too.
func appendInet(dst, text []byte) []byte {
	dst = append(dst, text...)
	switch {
	case bytes.IndexByte(text, '/') >= 0:
	case bytes.IndexByte(text, ':') >= 0:
		dst = append(dst, "/128"...)
	default:
		dst = append(dst, "/32"...)
	}
	return dst
}

func appendUUID(dst, u []byte) []byte {
	for i, group := range [5]int{4, 2, 2, 2, 6} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, u[:group])
		u = u[group:]
	}
	return dst
}

func binaryInt(data []byte) (int64, bool) {
	switch len(data) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(data))), true
	case 4:
		return int64(int32(binary.BigEndian.Uint32(data))), true
	case 8:
		return int64(binary.BigEndian.Uint64(data)), true
	}
	return 0, false
}

// partitionOf reads a partition number.
func partitionOf(v decode.Value, oid uint32) (int32, error) {
	var n int64
	ok := false
	switch {
	case v.Format == decode.ValueText:
		var err error
		n, err = strconv.ParseInt(string(v.Data), 10, 64)
		ok = err == nil
	case v.Format == decode.ValueBinary && isInt(oid):
		n, ok = binaryInt(v.Data)
	case v.Format == decode.ValueBinary:
		return 0, ErrTextNeeded
	}
	if !ok || n < 0 || n > math.MaxInt32 {
		return 0, errPartition
	}
	return int32(n), nil
}

var (
	errPartition = errors.New("is not the number of a partition")
	errTimestamp = errors.New("is not a time a record can carry (1970 to 9999)")
)

// timestampOf reads a timestamptz or, as UTC, a timestamp.
func timestampOf(v decode.Value, oid uint32) (time.Time, error) {
	const pgEpochMicros = 946_684_800_000_000 // 2000-01-01 UTC
	var at time.Time
	switch {
	case v.Format == decode.ValueText:
		var err error
		if at, err = parseTimestamp(v.Data); err != nil {
			return time.Time{}, errTimestamp
		}
	case v.Format == decode.ValueBinary && isTimestamp(oid):
		n, _ := binaryInt(v.Data)
		// Infinity is the greatest and least number.
		if len(v.Data) != 8 || n == math.MaxInt64 || n == math.MinInt64 {
			return time.Time{}, errTimestamp
		}
		if n > math.MaxInt64-pgEpochMicros {
			return time.Time{}, errTimestamp
		}
		at = time.UnixMicro(n + pgEpochMicros).UTC()
	case v.Format == decode.ValueBinary:
		return time.Time{}, ErrTextNeeded
	default:
		return time.Time{}, errUnchanged
	}
	if at.Unix() < 0 || at.Year() > 9999 {
		return time.Time{}, errTimestamp
	}
	return at, nil
}

// parseTimestamp reads what PostgreSQL prints with DateStyle ISO. A fraction
// after the seconds is taken though the layout has none.
func parseTimestamp(text []byte) (time.Time, error) {
	const local = "2006-01-02 15:04:05"
	layout := local
	if len(text) > len(local) {
		switch sign := lastSign(text[len(local):]); {
		case sign == 3:
			layout = local + "-07"
		case sign == 6:
			layout = local + "-07:00"
		}
	}
	at, err := time.Parse(layout, string(text))
	return at.UTC(), err
}

// lastSign is the length of a zone's offset at the end of text, sign included.
func lastSign(text []byte) int {
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] == '+' || text[i] == '-' {
			return len(text) - i
		}
	}
	return 0
}
