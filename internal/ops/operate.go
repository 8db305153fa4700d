package ops

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/rs/zerolog"
)

// operate adds what looks deeper, or changes how much is told. It is authorised
// as everything else here.
//
// The level is changed over HTTP and not by a signal: an image without a shell has
// no kill, a signal cannot say which level, and nobody can ask it what holds. PUT is
// a method that no page of another origin can send unasked.
func operate(mux *http.ServeMux, cfg Config) {
	mux.HandleFunc("GET /loglevel", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"level": zerolog.GlobalLevel()})
	})
	mux.HandleFunc("PUT /loglevel", func(w http.ResponseWriter, r *http.Request) { setLevel(cfg, w, r) })
	if !cfg.Pprof {
		return
	}
	// Without cmdline: flags may hold secrets.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// levels that PUT /loglevel takes: those of --log-level.
var levels = []zerolog.Level{zerolog.DebugLevel, zerolog.InfoLevel, zerolog.WarnLevel, zerolog.ErrorLevel}

func setLevel(cfg Config, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64))
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]any{"error": err.Error()})
		return
	}
	text := strings.ToLower(strings.TrimSpace(string(body)))
	for _, level := range levels {
		if level.String() != text {
			continue
		}
		was := zerolog.GlobalLevel()
		zerolog.SetGlobalLevel(level)
		if was != level { // at any level: whoever reads on sees why there is more, or less
			cfg.Log.Log().Stringer("from", was).Stringer("to", level).Str("by", r.RemoteAddr).Msg("log level changed")
		}
		answer(w, http.StatusOK, map[string]any{"level": level, "was": was})
		return
	}
	answer(w, http.StatusBadRequest, map[string]any{"error": fmt.Sprintf("the body is a level, one of %v: curl -X PUT -d debug .../loglevel", levels)})
}
