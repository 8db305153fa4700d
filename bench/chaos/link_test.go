package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func kafkaRequest(api int16, correlation uint32, body string) []byte {
	request := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	request = binary.BigEndian.AppendUint16(request, uint16(api))
	request = binary.BigEndian.AppendUint16(request, 1)
	return append(binary.BigEndian.AppendUint32(request, correlation), body...)
}

func kafkaAnswer(correlation uint32, body string) []byte {
	answer := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	return append(binary.BigEndian.AppendUint32(answer, correlation), body...)
}

func TestKafkaWire(t *testing.T) {
	asked, answered := kafkaWire()
	in := bufio.NewReader(bytes.NewReader(append(kafkaRequest(26, 7, "commit"), kafkaRequest(3, 8, "")...)))
	for _, want := range []string{endTxn, ""} {
		piece, what, err := asked(in)
		if err != nil || what != want || len(piece) < 12 {
			t.Fatalf("got %q (%d bytes), %v; want %q", what, len(piece), err, want)
		}
	}
	out := bufio.NewReader(bytes.NewReader(append(kafkaAnswer(8, ""), kafkaAnswer(7, "done")...)))
	for _, want := range []string{"", endTxn} {
		if _, what, err := answered(out); err != nil || what != want {
			t.Fatalf("answer is %q, %v; want %q", what, err, want)
		}
	}
	if _, _, err := asked(in); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if _, _, err := asked(bufio.NewReader(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff, 0, 0}))); err == nil {
		t.Error("a length of 4 GB was believed")
	}
}

func status(flush uint64) []byte {
	message := binary.BigEndian.AppendUint32([]byte{'d'}, 38)
	message = binary.BigEndian.AppendUint64(append(message, 'r'), flush+5)
	message = binary.BigEndian.AppendUint64(message, flush)
	return append(message, make([]byte, 17)...)
}

func TestPostgresWire(t *testing.T) {
	asked, answered := postgresWire()
	ssl := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, sslRequest)
	startup := append([]byte{0, 0, 0, 13, 0, 3, 0, 0}, "user\x00"...)
	query := append([]byte{'Q', 0, 0, 0, 6}, "x\x00"...)
	pieces := [][]byte{ssl, startup, query, status(10), status(10), status(11)}
	in := bufio.NewReader(bytes.NewReader(bytes.Join(pieces, nil)))
	for i, want := range []string{"", "", "", confirmation, "", confirmation} {
		piece, what, err := asked(in)
		if err != nil || what != want || !bytes.Equal(piece, pieces[i]) {
			t.Fatalf("piece %d: got %q (%q), %v; want %q", i, piece, what, err, want)
		}
	}
	if piece, what, err := answered(bufio.NewReader(bytes.NewReader([]byte("N")))); err != nil || what != "" || string(piece) != "N" {
		t.Errorf("answer: %q, %q, %v", piece, what, err)
	}
}

// echo is a Kafka that answers every request.
func echo(t *testing.T) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				next, _ := kafkaWire()
				in := bufio.NewReader(conn)
				for {
					piece, _, err := next(in)
					if err != nil {
						_ = conn.Close()
						return
					}
					_, _ = conn.Write(kafkaAnswer(binary.BigEndian.Uint32(piece[8:]), string(piece[12:])))
				}
			}()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	l, err := startLink(addr, listener.Addr().String(), kafkaWire)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

type client struct {
	t    *testing.T
	conn net.Conn
}

func dial(t *testing.T, l *link) *client {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t, conn}
}

// answer is what comes back for a request within a moment.
func (c *client) answer(api int16, body string) (string, error) {
	c.t.Helper()
	if _, err := c.conn.Write(kafkaRequest(api, 1, body)); err != nil {
		return "", err
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	_, next := kafkaWire()
	piece, _, err := next(bufio.NewReader(c.conn))
	if err != nil {
		return "", err
	}
	return string(piece[8:]), nil
}

func (c *client) want(api int16, body string) {
	c.t.Helper()
	if got, err := c.answer(api, body); err != nil || got != body {
		c.t.Fatalf("got %q, %v; want %q", got, err, body)
	}
}

func TestTrapSpringsOnce(t *testing.T) {
	for _, when := range []when{beforeRequest, afterRequest, beforeAnswer} {
		l := echo(t)
		c := dial(t, l)
		sprung := 0
		trap := l.set(endTxn, when, 2, func() { sprung++; l.drop() })
		c.want(0, "another")
		c.want(26, "the first")
		if sprung != 0 {
			t.Fatalf("%s: too early", trap)
		}
		if got, err := c.answer(26, "the second"); err == nil {
			t.Errorf("%s: answered %q", trap, got)
		}
		<-trap.done
		dial(t, l).want(26, "the third")
		if sprung != 1 || l.take(trap) {
			t.Errorf("%s: %d times", trap, sprung)
		}
	}
}

func TestTrapHoldsOnlyItsPiece(t *testing.T) {
	l := echo(t)
	held, other := dial(t, l), dial(t, l)
	release := make(chan struct{})
	trap := l.set(endTxn, beforeRequest, 1, func() { <-release })
	if _, err := held.answer(26, "held"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("not held: %v", err)
	}
	other.want(26, "passes")
	close(release)
	<-trap.done
	_ = held.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, next := kafkaWire()
	if piece, _, err := next(bufio.NewReader(held.conn)); err != nil || string(piece[8:]) != "held" {
		t.Errorf("got %q, %v after it was let go", piece, err)
	}
}

func TestBrokenLinks(t *testing.T) {
	for name, breakIt := range map[string]func(*link){
		"blackhole":  func(l *link) { l.swallow(requests, answers) },
		"unanswered": func(l *link) { l.swallow(answers) },
		"cut":        (*link).cut,
		"drop":       (*link).drop,
	} {
		t.Run(name, func(t *testing.T) {
			l := echo(t)
			c := dial(t, l)
			c.want(0, "before")
			breakIt(l)
			_, err := c.answer(0, "meanwhile")
			if silent := errors.Is(err, os.ErrDeadlineExceeded); err == nil || silent != (name == "blackhole" || name == "unanswered") {
				t.Errorf("meanwhile: %v", err)
			}
			if name == "cut" {
				if conn, err := net.Dial("tcp", l.Addr); err == nil {
					_ = conn.Close()
					t.Error("a new connection was taken")
				}
			}
			if err := l.restore(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.answer(0, "after"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the broken connection lives on: %v", err)
			}
			dial(t, l).want(0, "after")
		})
	}
}
