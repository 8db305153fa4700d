package ops

import (
	"embed"
	"net/http"
)

// The page asks /status once a second and draws what it says: no framework, and
// nothing from anywhere else.
//
//go:embed page
var pageFiles embed.FS

// policy lets the page load its own script and style, and nothing else: what an
// error message quotes can do no more than be read.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func pages(mux *http.ServeMux) {
	for path, file := range map[string]struct{ name, kind string }{
		"/{$}":      {"index.html", "text/html; charset=utf-8"},
		"/page.css": {"page.css", "text/css; charset=utf-8"},
		"/page.js":  {"page.js", "text/javascript; charset=utf-8"},
		"/plot.js":  {"plot.js", "text/javascript; charset=utf-8"},
	} {
		content, err := pageFiles.ReadFile("page/" + file.name)
		if err != nil {
			panic("walstream: bug: the page is not whole: " + err.Error())
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", file.kind)
			h.Set("Content-Security-Policy", policy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cache-Control", "no-cache") // an update of walstream is an update of its page
			_, _ = w.Write(content)            // the client left
		})
	}
}
