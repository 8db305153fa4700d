package sink

import (
	"fmt"
	"regexp"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// versionPattern is what Kafka accepts as a client's version.
var versionPattern = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)

// kgoLogger passes the library's log on at debug: what matters of it comes back
// as an error, and is logged once, by whoever handles that. The library logs
// neither credentials nor record contents.
type kgoLogger struct{ log zerolog.Logger }

// Level keeps the library from building lines that nobody reads.
func (l kgoLogger) Level() kgo.LogLevel {
	switch {
	case l.log.GetLevel() <= zerolog.TraceLevel:
		return kgo.LogLevelDebug
	case l.log.GetLevel() <= zerolog.DebugLevel:
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

func (l kgoLogger) Log(level kgo.LogLevel, message string, keyvals ...any) {
	event := l.log.Debug().Str("component", "kafka_client").Str("kafka_level", level.String())
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
