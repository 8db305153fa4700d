package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// echo answers each line with itself.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return l.Addr().String()
}

// ask sends a line and returns the answer, waiting for it a little.
func ask(conn net.Conn, patience time.Duration) (string, error) {
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func TestProxyFaults(t *testing.T) {
	p := NewProxy(t, echo(t))
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	isTimeout := func(err error) bool {
		var netErr net.Error
		return errors.As(err, &netErr) && netErr.Timeout()
	}
	conn := dial()
	if got, err := ask(conn, 10*time.Second); got != "hello\n" {
		t.Fatalf("%q, %v", got, err)
	}

	p.Latency(150 * time.Millisecond)
	p.Latency(100 * time.Millisecond) // replaces the first
	began := time.Now()
	if got, err := ask(conn, 10*time.Second); got != "hello\n" || time.Since(began) < 100*time.Millisecond {
		t.Errorf("latency: %q, %v after %v", got, err, time.Since(began))
	}
	p.Restore()
	began = time.Now()
	if got, err := ask(conn, 10*time.Second); got != "hello\n" || time.Since(began) > 90*time.Millisecond {
		t.Errorf("latency stayed: %q, %v after %v", got, err, time.Since(began))
	}

	for name, fault := range map[string]func(){"blackhole": p.Blackhole, "swallow answers": p.SwallowAnswers} {
		conn := dial()
		fault()
		for _, c := range []net.Conn{conn, dial()} {
			if got, err := ask(c, 50*time.Millisecond); !isTimeout(err) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		p.Restore()
		if got, err := ask(dial(), 10*time.Second); got != "hello\n" {
			t.Errorf("%s stayed: %q, %v", name, got, err)
		}
	}

	conn = dial()
	if _, err := ask(conn, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if _, err := ask(conn, 10*time.Second); err == nil || isTimeout(err) {
		t.Errorf("cut: the connection lived on: %v", err)
	}
	if conn, err := net.Dial("tcp", p.Addr); err == nil {
		t.Errorf("cut: a new connection was taken: %v", conn.Close())
	}
	p.Restore()
	conn = dial()
	if got, err := ask(conn, 10*time.Second); got != "hello\n" {
		t.Errorf("cut stayed: %q, %v", got, err)
	}
	p.Drop()
	if _, err := ask(conn, 10*time.Second); err == nil || isTimeout(err) {
		t.Errorf("drop: the connection lived on: %v", err)
	}
	if got, err := ask(dial(), 10*time.Second); got != "hello\n" {
		t.Errorf("drop stayed: %q, %v", got, err)
	}
}

// testKafkaProxy: a client behind the proxy feels every fault, a direct one none.
func testKafkaProxy(t *testing.T, k *Kafka) {
	topic := k.CreateTopic(t, 1, nil)
	p := k.NewProxy(t)
	client := kafkaClient(t, k, kgo.SeedBrokers(p.Addrs...), kgo.DefaultProduceTopic(topic),
		kgo.AllowIdempotentProduceCancellation()) // else a produce in flight outlives its context
	produce := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return client.ProduceSync(ctx, kgo.StringRecord("value")).FirstErr()
	}
	if err := produce(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	p.Latency(200 * time.Millisecond)
	began := time.Now()
	if err := produce(20 * time.Second); err != nil || time.Since(began) < 200*time.Millisecond {
		t.Errorf("latency: %v after %v", err, time.Since(began))
	}
	p.Restore()
	p.Blackhole()
	if err := produce(300 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the client went round the proxy: %v", err)
	}
	p.Restore()
	if err := produce(30 * time.Second); err != nil {
		t.Errorf("after the fault: %v", err)
	}
}

func TestKafkaProxy(t *testing.T) { testKafkaProxy(t, NewKafka(t, KafkaOptions{Real: true})) }

func TestKfakeProxy(t *testing.T) {
	t.Setenv(EnvFrom, Kfake)
	t.Setenv(EnvRequireReal, "")
	testKafkaProxy(t, NewKafka(t, KafkaOptions{Brokers: 2}))
}
