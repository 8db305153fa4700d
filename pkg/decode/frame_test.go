package decode_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// at is a server time with microseconds, the resolution of the protocol.
var at = time.Date(2026, 11, 30, 12, 34, 56, 789_012_000, time.UTC)

func TestParseFrame(t *testing.T) {
	message := []byte("message")
	for _, test := range []struct {
		name    string
		payload []byte
		want    decode.Frame
	}{
		{
			"XLogData", decodetest.XLogData(0x1_0000_0002, at, message),
			decode.Frame{Kind: decode.FrameXLogData, LSN: 0x1_0000_0002, ServerTime: at, Data: message},
		},
		{
			"XLogData without a message", decodetest.XLogData(7, at, nil),
			decode.Frame{Kind: decode.FrameXLogData, LSN: 7, ServerTime: at},
		},
		{
			"keepalive", decodetest.Keepalive(math.MaxUint64, at, false),
			decode.Frame{Kind: decode.FrameKeepalive, LSN: math.MaxUint64, ServerTime: at},
		},
		{
			"keepalive that wants a reply", decodetest.Keepalive(9, at, true),
			decode.Frame{Kind: decode.FrameKeepalive, LSN: 9, ServerTime: at, ReplyRequested: true},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := decode.ParseFrame(test.payload)
			if err != nil {
				t.Fatal(err)
			}
			if got.Kind != test.want.Kind || got.LSN != test.want.LSN || !got.ServerTime.Equal(test.want.ServerTime) ||
				!bytes.Equal(got.Data, test.want.Data) || got.ReplyRequested != test.want.ReplyRequested {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// Every shorter form of a frame, and a longer one where its size is fixed, is an
// error that names what was wrong.
func TestParseFrameRefuses(t *testing.T) {
	for _, whole := range [][]byte{decodetest.XLogData(1, at, nil), decodetest.Keepalive(1, at, false)} {
		for n := range whole {
			_, err := decode.ParseFrame(whole[:n])
			var broken *decode.Error
			if !errors.As(err, &broken) {
				t.Fatalf("%d bytes of frame %q: error %v, want a *decode.Error", n, whole[0], err)
			}
			if broken.Offset > n || broken.Kind != 0 || broken.Reason == "" {
				t.Errorf("%d bytes of frame %q: %+v", n, whole[0], broken)
			}
		}
	}
	for name, test := range map[string]struct {
		payload []byte
		reason  string
	}{
		"unknown kind":        {[]byte("x...."), "unknown kind"},
		"keepalive and more":  {append(decodetest.Keepalive(1, at, false), 0), "left over"},
		"empty":               {nil, "unknown kind"},
		"a status of our own": {decode.AppendStatusUpdate(nil, 1, 1, at, false), "unknown kind"},
	} {
		if _, err := decode.ParseFrame(test.payload); err == nil || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.reason)
		}
	}
}

// The bytes are those of
// https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-STANDBY-STATUS-UPDATE
//
//	Byte1('r')  Int64 written  Int64 flushed  Int64 applied  Int64 microseconds since 2000-01-01  Byte1 reply
func TestAppendStatusUpdate(t *testing.T) {
	y2k := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name                string
		received, confirmed pglogrepl.LSN
		now                 time.Time
		wantReply           bool
		want                string
	}{
		{
			"each byte in its place", 0x0102030405060708, 0x1112131415161718, y2k.Add(0x21222324 * time.Microsecond), true,
			"72 0102030405060708 1112131415161718 1112131415161718 0000000021222324 01",
		},
		{
			// pglogrepl would send the written position as flushed here.
			"nothing confirmed stays nothing confirmed", 0x16B3748, 0, y2k, false,
			"72 00000000016b3748 0000000000000000 0000000000000000 0000000000000000 00",
		},
		{
			"a clock before 2000", 1, 1, y2k.Add(-time.Microsecond), false,
			"72 0000000000000001 0000000000000001 0000000000000001 ffffffffffffffff 00",
		},
		{
			"parts of a microsecond are cut", 1, 1, y2k.Add(1999 * time.Nanosecond), false,
			"72 0000000000000001 0000000000000001 0000000000000001 0000000000000001 00",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			prefix := []byte("prefix")
			got := decode.AppendStatusUpdate(prefix, test.received, test.confirmed, test.now, test.wantReply)
			want := append([]byte("prefix"), unhex(t, test.want)...)
			if !bytes.Equal(got, want) {
				t.Errorf("got  %x\nwant %x", got, want)
			}
			if len(got)-len(prefix) != decode.StatusUpdateSize {
				t.Errorf("%d bytes, StatusUpdateSize is %d", len(got)-len(prefix), decode.StatusUpdateSize)
			}
		})
	}
}

func TestBatch(t *testing.T) {
	buffer := []byte("abc")
	batch := decode.Batch{Buffer: buffer, Payloads: [][]byte{buffer[:1], buffer[1:3]}}
	var got []string
	for range 3 {
		if payload, ok := batch.Next(); ok {
			got = append(got, string(payload))
		}
	}
	if strings.Join(got, ",") != "a,bc" {
		t.Errorf("payloads %q", got)
	}
	batch.Reset()
	if _, ok := batch.Next(); ok || len(batch.Buffer) != 0 || cap(batch.Buffer) != cap(buffer) {
		t.Errorf("after Reset: %+v", batch)
	}
	batch.Payloads = append(batch.Payloads, []byte("d"))
	if payload, ok := batch.Next(); !ok || string(payload) != "d" {
		t.Errorf("first payload after Reset: %q, %v", payload, ok)
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
