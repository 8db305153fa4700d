package sink

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// versionPattern is what Kafka accepts as a client's version.
var versionPattern = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)

// kgoLogger passes the library's log on at debug: what matters of it comes back
// as an error, and is logged once, by whoever handles that. The library logs
// neither credentials nor record contents.
type kgoLogger struct {
	log zerolog.Logger
	// refused, when set, is called when a broker has refused a batch. The library
	// has no hook there; this line of its log is the only thing that happens
	// between the broker's answer and the moment from which records behind the
	// batch may be sent, both under the partition's lock. The promises of the
	// batch run later, on another goroutine, and would now and then be too late
	// (seen: one record published behind a refused one).
	refused func()
}

// batchRefused is the line, and its level is info.
const batchRefused = "batch in a produce request failed"

// Level keeps the library from building lines that nobody reads.
func (l kgoLogger) Level() kgo.LogLevel {
	switch level := max(l.log.GetLevel(), zerolog.GlobalLevel()); { // the global one is changed while it runs
	case level <= zerolog.TraceLevel:
		return kgo.LogLevelDebug
	case level <= zerolog.DebugLevel, l.refused != nil:
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

// Log takes one line.
func (l kgoLogger) Log(level kgo.LogLevel, message string, keyvals ...any) {
	if l.refused != nil && message == batchRefused {
		l.refused()
	}
	event := l.log.Debug()
	if !event.Enabled() {
		return
	}
	event = event.Str("component", "kafka_client").Str("kafka_level", level.String())
	for i := 0; i+1 < len(keyvals); i += 2 {
		key := fmt.Sprint(keyvals[i])
		switch value := keyvals[i+1].(type) {
		case error:
			event = event.AnErr(key, value)
		case string:
			event = event.Str(key, value)
		default:
			event = event.Str(key, fmt.Sprint(value))
		}
	}
	event.Msg(message)
}

// connections remembers why the last connection failed: a request that waited for
// one until its time was over says "deadline exceeded", which helps nobody.
type connections struct {
	failure atomic.Pointer[string]
	produce atomic.Pointer[string] // of the last request with rows; nil when it was answered
}

func (c *connections) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.failure.Store(&text)
}

// last failure, unless a request has been answered since.
func (c *connections) last() string {
	if text := c.failure.Load(); text != nil {
		return *text
	}
	return ""
}

// OnBrokerConnect hears of every attempt to connect, login included. A bare EOF
// says less than OnBrokerRead has noted.
func (c *connections) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && err.Error() != io.EOF.Error() {
		c.note("%v", err)
	}
}

// OnBrokerRead hears of every answer. Some brokers end the connection when they
// refuse a login, without a word.
func (c *connections) OnBrokerRead(broker kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	switch login := key == kmsg.SASLHandshake.Int16() || key == kmsg.SASLAuthenticate.Int16(); {
	case err != nil && login:
		c.note("%s:%d ended the connection during the login (wrong user or password?): %v", broker.Host, broker.Port, err)
	case err == nil && !login && key != kmsg.ApiVersions.Int16():
		c.failure.Store(nil)
	}
}

// OnBrokerE2E hears of every request and what became of it. A broker that finds a
// request too large ends the connection, without a word, and is asked again.
func (c *connections) OnBrokerE2E(broker kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key != kmsg.Produce.Int16() {
		return
	}
	err := e2e.Err()
	if err == nil {
		c.produce.Store(nil)
		return
	}
	text := fmt.Sprintf("%s:%d ended the connection over a request with rows (larger than its socket.request.max.bytes?): %v", broker.Host, broker.Port, err)
	c.produce.Store(&text)
}

var (
	_ kgo.HookBrokerE2E     = (*connections)(nil)
	_ kgo.HookBrokerConnect = (*connections)(nil)
	_ kgo.HookBrokerRead    = (*connections)(nil)
)
