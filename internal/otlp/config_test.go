package otlp

import (
	"fmt"
	"strings"
	"testing"
)

func TestFromVariables(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318"
	for _, c := range []struct {
		variables string // by blanks
		on        bool
		says      string // of the configuration, or the error
	}{
		{"", false, ""},
		{"OTEL_SERVICE_NAME=outbox", false, ""},
		{endpoint, true, "http://collector:4318/v1/traces map[] 10s false 1"},
		{endpoint + "/", true, "http://collector:4318/v1/traces "},
		{endpoint + "/tenant/7", true, "http://collector:4318/tenant/7/v1/traces "},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://c/t " + endpoint, true, "https://c/t "},
		{endpoint + " OTEL_SDK_DISABLED=true", false, ""},
		{endpoint + " OTEL_TRACES_EXPORTER=none", false, ""},
		{endpoint + " OTEL_TRACES_EXPORTER=console,otlp", true, ""},
		{endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", true, ""},
		{endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, "walstream speaks OTLP over HTTP"},
		{endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json", true, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318", false, "is no URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=://u:geheim@x", false, "is no URL"},
		{endpoint + " OTEL_EXPORTER_OTLP_HEADERS=a=b%3D,c=%20d,", true, "map[a:b= c: d]"},
		{endpoint + " OTEL_EXPORTER_OTLP_HEADERS=geheim", false, "is not of the form"},
		{endpoint + " OTEL_EXPORTER_OTLP_HEADERS=a=%geheim", false, "is not of the form"},
		{endpoint + " OTEL_EXPORTER_OTLP_TIMEOUT=1500", true, " 1.5s "},
		{endpoint + " OTEL_EXPORTER_OTLP_TIMEOUT=10s", false, "milliseconds"},
		{endpoint + " OTEL_EXPORTER_OTLP_TIMEOUT=0", false, "milliseconds"},
		{endpoint + " OTEL_EXPORTER_OTLP_COMPRESSION=gzip", true, " true "},
		{endpoint + " OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere", false, "/nowhere holds no certificate"},
		{endpoint + " OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/nowhere", false, "no pair"},
		{endpoint + " OTEL_TRACES_SAMPLER=always_off", true, " false 0 "},
		{endpoint + " OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=0.1", true, " false 0.1 "},
		{endpoint + " OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=NaN", false, "between 0 and 1"},
		{endpoint + " OTEL_TRACES_SAMPLER=jaeger_remote", false, "jaeger_remote"},
		{endpoint, true, "[{service.name walstream} {service.version 1.2.3}]"},
		{endpoint + " OTEL_RESOURCE_ATTRIBUTES=service.name=a,k=v%2Cw", true, "[{k v,w} {service.name a} {service.version 1.2.3}]"},
		{endpoint + " OTEL_SERVICE_NAME=b OTEL_RESOURCE_ATTRIBUTES=service.name=a", true, "{service.name b}"},
		{endpoint + " OTEL_RESOURCE_ATTRIBUTES=a", false, "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		values := map[string]string{}
		for _, v := range strings.Fields(c.variables) {
			name, value, _ := strings.Cut(v, "=")
			values[name] = value
		}
		cfg, on, err := FromVariables(func(name string) string { return values[name] }, "1.2.3")
		got := fmt.Sprint(cfg.URL, " ", cfg.Headers, " ", cfg.Timeout, " ", cfg.Gzip, " ", cfg.Ratio, " ", cfg.Resource)
		if err != nil {
			got = err.Error()
		}
		if on != c.on || (err == nil && !c.on) != (c.says == "" && !c.on) || !strings.Contains(got, c.says) || strings.Contains(got, "geheim") {
			t.Errorf("%s: on %v, %s", c.variables, on, got)
		}
	}
}
