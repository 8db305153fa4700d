package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// endpointTimeout of one request: a connection to a broker waits meanwhile.
const endpointTimeout = 5 * time.Second

// answerLimit of an endpoint's answer; tokens with many claims have some KB.
const answerLimit = 1 << 20

// margin before the end of what an endpoint handed out, in which a new one is
// asked for.
const margin = time.Minute

// kept is something with an end that is asked for anew shortly before. A Kafka
// client opens many connections at a time; they share one request.
type kept[T any] struct {
	mu    sync.Mutex
	value T
	until time.Time // zero: none
}

// get returns what is kept, or asks. Of what lives for less than twice the margin
// half its life is used.
func (k *kept[T]) get(now time.Time, ask func() (T, time.Time, error)) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Before(k.until) {
		return k.value, nil
	}
	value, ends, err := ask()
	if err != nil {
		return value, err
	}
	life := ends.Sub(now)
	k.value, k.until = value, now.Add(max(life/2, life-margin))
	return value, nil
}

// Tokens come from an endpoint by the client-credentials grant (RFC 6749, 4.4).
type Tokens struct {
	Setting string // names the endpoint, for errors
	URL     string
	Client  string
	// Secret of the client, asked for each new token.
	Secret func() (string, error)
	Scope  string
	// TLS of the endpoint, asked for each new token; nil: the system's authorities.
	TLS TLSFiles

	kept kept[string]
}

// Token returns one that is good for a while.
func (t *Tokens) Token(ctx context.Context) (string, error) {
	return t.kept.get(time.Now(), func() (string, time.Time, error) {
		token, ends, err := t.ask(ctx)
		if err != nil {
			return "", ends, &Error{t.Setting, err}
		}
		return token, ends, nil
	})
}

func (t *Tokens) ask(ctx context.Context) (token string, ends time.Time, err error) {
	secret, err := t.Secret()
	if err != nil {
		return "", ends, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.Scope != "" {
		form.Set("scope", t.Scope)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", ends, errors.New("is no URL") // the error quotes it
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	// RFC 6749, 2.3.1: both are encoded as a form would be before they are joined.
	request.SetBasicAuth(url.QueryEscape(t.Client), url.QueryEscape(secret))
	config, err := t.TLS.Client()
	if err != nil {
		return "", ends, err
	}
	client := &http.Client{
		Timeout:   endpointTimeout,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true},
		// A redirect would carry the secret to a host nobody named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	now := time.Now()
	status, body, err := do(client, request)
	if err != nil {
		return "", ends, err
	}
	var answer struct {
		Token   string  `json:"access_token"`
		Expires float64 `json:"expires_in"`
		Error   string  `json:"error"`
	}
	unreadable := json.Unmarshal(body, &answer) != nil
	switch {
	case status != http.StatusOK:
		return "", ends, fmt.Errorf("answers %d %s: check the endpoint, kafka-sasl-user, its password and kafka-sasl-scope", status, words(answer.Error))
	case unreadable || answer.Token == "":
		return "", ends, errors.New("answers without an access_token")
	case answer.Expires <= 0: // it need not say; then the token is good for this login
		answer.Expires = 0
	}
	return answer.Token, now.Add(time.Duration(answer.Expires * float64(time.Second))), nil
}

// do sends a request and reads the answer, within bounds. The error says nothing
// of the address, which may hold a secret.
func do(client *http.Client, request *http.Request) (status int, body []byte, err error) {
	response, err := client.Do(request)
	var quoting *url.Error
	if errors.As(err, &quoting) {
		err = quoting.Err
	}
	if err != nil {
		return 0, nil, fmt.Errorf("does not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return 0, nil, fmt.Errorf("breaks off its answer: %w", err)
	}
	return response.StatusCode, body, nil
}

// words keeps an error code of the standard (RFC 6749, 5.2) and drops what may be
// anything else.
func words(code string) string {
	if len(code) > 64 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "(unnamed)"
	}
	return code
}
