package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/walstream/walstream/pkg/decode"
)

// message is a protocol message with its header.
func message(kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
	return append(b, body...)
}

func collect(t *testing.T, r *Reader) (payloads [][]byte) {
	t.Helper()
	for batch := range r.Batches() {
		for {
			p, ok := batch.Next()
			if !ok {
				break
			}
			payloads = append(payloads, bytes.Clone(p))
		}
		r.Release(batch)
	}
	return payloads
}

// Whatever way the bytes are cut, the payloads come out whole and in order, and
// messages about the session are passed over.
func TestReaderBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	var want [][]byte
	for i := range 300 {
		size := rng.IntN(2000)
		if i == 150 {
			size = 3 * batchSize // larger than a buffer
		}
		payload := bytes.Repeat([]byte{byte(i)}, size)
		want = append(want, payload)
		stream = append(stream, message(msgCopyData, payload)...)
		if i%10 == 0 {
			stream = append(stream, message(msgParameterStatus, []byte("TimeZone\x00UTC\x00"))...)
		}
	}
	stream = append(stream, message(msgCopyDone, nil)...)
	stream = append(stream, message(msgReadyForQuery, []byte{'I'})...)
	for name, in := range map[string]io.Reader{
		"at once": bytes.NewReader(stream),
		"halves":  iotest.HalfReader(bytes.NewReader(stream)),
		"bytes":   iotest.OneByteReader(bytes.NewReader(stream)),
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(in)
			go r.run()
			got := collect(t, r)
			if len(got) != len(want) {
				t.Fatalf("%d payloads, want %d", len(got), len(want))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("payload %d differs", i)
				}
			}
			if !errors.Is(r.Err(), io.EOF) {
				t.Errorf("ended with %v, want io.EOF", r.Err())
			}
		})
	}
}

func TestReaderEnds(t *testing.T) {
	failure := message(msgError, []byte("SFATAL\x00VFATAL\x00C57P01\x00Mterminating connection\x00\x00"))
	for name, c := range map[string]struct {
		stream []byte
		want   error
	}{
		"error response": {failure, ErrServerStopping},
		"cut":            {message(msgCopyData, []byte("abc"))[:6], ErrStreamEnded},
		"nothing":        {nil, ErrStreamEnded},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(bytes.NewReader(append(message(msgCopyData, []byte("x")), c.stream...)))
			go r.run()
			if got := collect(t, r); len(got) != 1 {
				t.Errorf("%d payloads before the end, want 1", len(got))
			}
			if !errors.Is(r.Err(), c.want) {
				t.Errorf("ended with %v, want %v", r.Err(), c.want)
			}
		})
	}
	passed := message(msgNotice, []byte("SWARNUNG\x00VWARNING\x00C55000\x00M...\x00RLoadPublications\x00\x00"))
	other := message(msgNotice, []byte("SNOTICE\x00VNOTICE\x00C55000\x00M...\x00Relsewhere\x00\x00"))
	for _, c := range []struct {
		name     string
		notice   []byte
		passOver bool
		want     error
	}{
		{"publication passed over", passed, false, ErrPublicationMissing},
		{"publication passed over, accepted", passed, true, ErrServerStopping},
		{"another notice", other, false, ErrServerStopping},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReader(bytes.NewReader(slices.Concat(message(msgCopyData, []byte("x")), c.notice, failure)))
			r.passOver = c.passOver
			go r.run()
			if got := collect(t, r); len(got) != 1 || !errors.Is(r.Err(), c.want) {
				t.Errorf("%d payloads, then %v; want 1, then %v", len(got), r.Err(), c.want)
			}
		})
	}
	for name, stream := range map[string][]byte{
		"unknown kind":    message('?', nil),
		"negative length": {msgCopyData, 0xff, 0xff, 0xff, 0xff},
		"length too low":  {msgCopyData, 0, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(bytes.NewReader(stream))
			go r.run()
			collect(t, r)
			if _, ok := errors.AsType[*decode.Error](r.Err()); !ok {
				t.Errorf("ended with %v, want a decode error", r.Err())
			}
		})
	}
}

// While nobody takes batches the reader stops reading, says that the silence is
// ours, and leaves when it is stopped.
func TestReaderPushesBack(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		for i := 0; ; i++ {
			if _, err := server.Write(message(msgCopyData, []byte(fmt.Sprint(i)))); err != nil {
				return
			}
		}
	}()
	defer server.Close()
	r := newReader(client)
	done := make(chan struct{})
	go func() { defer close(done); r.run() }()
	deadline := time.Now().Add(10 * time.Second)
	for !r.blocked.Load() {
		if time.Now().After(deadline) {
			t.Fatal("the reader never waited for a free batch")
		}
		time.Sleep(time.Millisecond)
	}
	if len(r.batches) != batchCount {
		t.Errorf("%d batches read ahead, want %d", len(r.batches), batchCount)
	}
	if since := time.Since(r.HeardAt()); since > time.Second {
		t.Errorf("heard %s ago while it is not reading", since)
	}
	close(r.stop)
	<-done
	if !errors.Is(r.Err(), errReaderStopped) {
		t.Errorf("ended with %v", r.Err())
	}
}

// The connection library gets one message at a time, so nothing of the stream is
// left in its buffers.
func TestMessageReader(t *testing.T) {
	first, second := message('Z', []byte{'I'}), message(msgCopyData, []byte("stream"))
	m := newMessageReader(bytes.NewReader(append(bytes.Clone(first), second...)))
	buf := make([]byte, 8192)
	n, err := io.ReadAtLeast(m, buf, len(first))
	if err != nil || !bytes.Equal(buf[:n], first) {
		t.Fatalf("read %q, %v; want %q only", buf[:n], err, first)
	}
	if rest, err := io.ReadAll(m.in); err != nil || !bytes.Equal(rest, second) {
		t.Fatalf("left %q, %v; want %q", rest, err, second)
	}
}

func TestParsePGDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "15s": 15 * time.Second, "1min": time.Minute, "250ms": 250 * time.Millisecond,
		"2h": 2 * time.Hour, "1d": 24 * time.Hour, "90s": 90 * time.Second,
	} {
		if got, err := parsePGDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := parsePGDuration("soon"); err == nil {
		t.Error("no error for a duration that is none")
	}
}
