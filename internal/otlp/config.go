package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Config of an Exporter, as OpenTelemetry's variables have it.
type Config struct {
	URL      string // of the traces themselves
	Headers  map[string]string
	Timeout  time.Duration
	Gzip     bool
	TLS      *tls.Config
	Ratio    float64 // of the spans that are sent
	Resource []Attribute
}

// defaultTimeout is the specification's.
const defaultTimeout = 10 * time.Second

// FromVariables reads OpenTelemetry's variables:
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/. It is off, on ==
// false, without an endpoint among them, or where they switch traces off. An error
// is a variable that cannot be followed.
func FromVariables(getenv func(string) string, version string) (c Config, on bool, err error) {
	v := variables{getenv}
	endpoint := v.of("ENDPOINT")
	if endpoint == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || !v.exported() {
		return c, false, nil
	}
	if protocol := v.of("PROTOCOL"); protocol == "grpc" {
		return c, false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is grpc: walstream speaks OTLP over HTTP with JSON (http/json, mostly port 4318)")
	}
	if c.URL, err = v.url(endpoint); err != nil {
		return c, false, err
	}
	if c.Headers, err = Headers(v.of("HEADERS")); err != nil {
		return c, false, err
	}
	if c.Timeout, err = v.timeout(); err != nil {
		return c, false, err
	}
	if c.TLS, err = v.tls(); err != nil {
		return c, false, err
	}
	if c.Ratio, err = v.ratio(); err != nil {
		return c, false, err
	}
	c.Gzip = v.of("COMPRESSION") == "gzip"
	c.Resource, err = v.resource(version)
	return c, err == nil, err
}

// variables of the environment.
type variables struct{ get func(string) string }

// of the exporter: that for traces counts before that for all signals.
func (v variables) of(name string) string {
	if text := v.get("OTEL_EXPORTER_OTLP_TRACES_" + name); text != "" {
		return text
	}
	return v.get("OTEL_EXPORTER_OTLP_" + name)
}

// exported: OTEL_TRACES_EXPORTER names exporters, otlp when it is not set.
func (v variables) exported() bool {
	names := v.get("OTEL_TRACES_EXPORTER")
	return names == "" || strings.Contains(","+strings.ReplaceAll(names, " ", "")+",", ",otlp,")
}

func (v variables) url(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("OTEL_EXPORTER_OTLP_ENDPOINT is no URL, http://HOST:PORT or https://HOST:PORT") // without it: it may hold a password
	}
	if v.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		u = u.JoinPath("v1/traces")
	}
	return u.String(), nil
}

// Headers of OTEL_EXPORTER_OTLP_HEADERS: name=value,... with values as in URLs.
func Headers(text string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS is not of the form name=value,..., with values as in URLs") // without it: it holds secrets
		}
		headers[name] = value
	}
	return headers, nil
}

func (v variables) timeout() (time.Duration, error) {
	text := v.of("TIMEOUT")
	if text == "" {
		return defaultTimeout, nil
	}
	ms, err := strconv.Atoi(text)
	if err != nil || ms <= 0 {
		return 0, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT is %q, and not a number of milliseconds", text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// tls is nil without certificates of its own.
func (v variables) tls() (*tls.Config, error) {
	ca, cert, key := v.of("CERTIFICATE"), v.of("CLIENT_CERTIFICATE"), v.of("CLIENT_KEY")
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		config.RootCAs = x509.NewCertPool()
		if err != nil || !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s holds no certificate in PEM that can be read", ca)
		}
	}
	if cert != "" || key != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return nil, errors.New("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY are no pair of PEM files that can be read")
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // anew: they are renewed
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
	}
	return config, nil
}

// ratio of the spans: each is the root of a trace, so what depends on a parent does
// not apply.
func (v variables) ratio() (float64, error) {
	switch sampler := strings.TrimPrefix(v.get("OTEL_TRACES_SAMPLER"), "parentbased_"); sampler {
	case "", "always_on":
		return 1, nil
	case "always_off":
		return 0, nil
	case "traceidratio":
		text := v.get("OTEL_TRACES_SAMPLER_ARG")
		if text == "" {
			return 1, nil
		}
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			return 0, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q, and not between 0 and 1", text)
		}
		return ratio, nil
	default:
		return 0, fmt.Errorf("OTEL_TRACES_SAMPLER is %q: known are always_on, always_off, traceidratio, and parentbased_ before each", sampler)
	}
}

func (v variables) resource(version string) ([]Attribute, error) {
	named, err := Headers(v.get("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, errors.New("OTEL_RESOURCE_ATTRIBUTES is not of the form name=value,..., with values as in URLs")
	}
	for name, value := range map[string]string{"service.name": "walstream", "service.version": version} {
		if _, ok := named[name]; !ok {
			named[name] = value
		}
	}
	if name := v.get("OTEL_SERVICE_NAME"); name != "" {
		named["service.name"] = name
	}
	var attributes []Attribute
	for _, name := range sortedKeys(named) {
		attributes = append(attributes, Attribute{name, named[name]})
	}
	return attributes, nil
}
