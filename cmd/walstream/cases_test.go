package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestC59MistypedSetting is ignored, or environment and file disagree: none of
// that here. Each line is one of the tries of the case.
func TestC59MistypedSetting(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct {
		name, file string
		args       []string
		environ    []string
		want       string // the fault; F is the file
	}{
		{"slot_nmae", "slot_nmae: x\n", nil, nil, "slot_nmae (F:1): is no setting; nearest: slot"},
		{"slot_nmae as flag", "", []string{"--slot-nmae=x"}, nil, "--slot-nmae (flag): is no setting; nearest: --slot"},
		{"acks: al", "slot: s\nacks: al\n", nil, nil, "acks (F:2): is no setting; there is nothing to set: walstream always waits for all in-sync replicas"},
		{"mistyped value", "kafka-compression: lz5\n", nil, nil, `kafka-compression = "lz5" (F:1): is not known; allowed: none, gzip, snappy, lz4, zstd`},
		{"key at the wrong level", "kafka:\n  brokers: k:1\n", nil, nil, "kafka.brokers (F:2): stands at the wrong level; settings are flat: kafka-brokers"},
		{"key of a table at the top's place", "outboxes:\n- table: a\n  slot: s\n", nil, nil, "outboxes[0].slot (F:3): stands at the wrong level"},
		{"duplicate keys", "slot: a\ntable: b.c\nslot: d\n", nil, nil, "slot (F:3): stands there twice, first in line 1"},
		{"duplicate keys in a table", "outboxes:\n- {table: a, table: b}\n", nil, nil, "outboxes[0].table (F:2): stands there twice"},
		{"unit missing", "stall-timeout: 5\n", nil, nil, `stall-timeout = "5" (F:1): has no unit: 5s or 5ms?; allowed: 1s to 1h`},
		{"unit missing, mistyped name", "timeout: 5\n", nil, nil, "timeout (F:1): is no setting; nearest: stall-timeout"},
		{"unit missing in a size", "", nil, []string{"WALSTREAM_MAX_IN_FLIGHT_BYTES=33554432"}, "has no unit"},
		{"wrong case of a key", "Slot: s\n", nil, nil, "Slot (F:1): is no setting; nearest: slot"},
		{"wrong case of a flag", "", []string{"--SLOT=s"}, nil, "--SLOT (flag): is no setting; nearest: --slot"},
		{"wrong case of a variable", "", nil, []string{"Walstream_Slot=s"}, "Walstream_Slot (variable): is no setting; nearest: WALSTREAM_SLOT"},
		{"wrong case of a value", "sink: Kafka\n", nil, nil, `sink = "Kafka" (F:1): is not known; allowed: kafka, stdout`},
		{"wrong case of a slot", "slot: Bank\n", nil, nil, `slot = "Bank" (F:1): is no slot name`},
		{"empty variable", "", nil, []string{"WALSTREAM_SLOT="}, "slot (variable WALSTREAM_SLOT): is required"},
		{"empty variable over a file's value", "stall-timeout: 90s\n", nil, []string{"WALSTREAM_STALL_TIMEOUT="}, "stall-timeout (variable WALSTREAM_STALL_TIMEOUT): is empty"},
		{"mistyped variable", "", nil, []string{"WALSTREAM_KAFKA_BROKER=k:1"}, "WALSTREAM_KAFKA_BROKER (variable): is no setting; nearest: WALSTREAM_KAFKA_BROKERS"},
		{"[::1]:5432 unquoted in YAML", "http-listen: [::1]:5432\n", nil, nil, "F (F:1): is not YAML"},
		{"[::1]:5432 in a DSN", "", []string{"--postgres=host=[::1]:5432"}, nil, "a DSN wants host=::1 port=5432"},
		{"::1:5432", "kafka-brokers: '::1:5432'\n", nil, nil, "is ambiguous; an IPv6 address is written [::1]:9092"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args, path := c.args, "F"
			if c.file != "" {
				path = writeFile(t, c.file)
				args = append(args, "--config", path)
			}
			got := strings.ReplaceAll(faultsOf(t, args, c.environ), path, "F")
			if !strings.Contains(got, c.want) {
				t.Errorf("%s\nwant: %s", got, c.want)
			}
		})
	}
	t.Run("variable only", func(t *testing.T) {
		if c := mustLoad(t, nil, []string{"WALSTREAM_SLOT=s"}); c.Slot != "s" || c.report.origin("slot") != "variable WALSTREAM_SLOT" {
			t.Errorf("slot %q from %s", c.Slot, c.report.origin("slot"))
		}
	})
	t.Run("[::1]:5432", func(t *testing.T) {
		path := writeFile(t, "slot: s\nhttp-listen: '[::1]:5432'\nkafka-brokers: ['[::1]:5432']\npostgres: postgres://u@[::1]:5432/d\n")
		if c := mustLoad(t, []string{"--config", path}, nil); c.HTTPListen != "[::1]:5432" || c.KafkaBrokers[0] != "[::1]:5432" {
			t.Errorf("http-listen %s, kafka-brokers %s", c.HTTPListen, c.KafkaBrokers)
		}
	})
	t.Run("file, variable and flag in conflict", func(t *testing.T) {
		path := writeFile(t, "slot: s\nlog-level: debug\nlog-format: json\nsink: stdout\n")
		c := mustLoad(t, []string{"--config", path, "--log-level=error"}, []string{"WALSTREAM_LOG_LEVEL=warn", "WALSTREAM_LOG_FORMAT=console"})
		var out bytes.Buffer
		if err := printConfig(&out, c); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"log-level: error # flag --log-level\n", "log-format: console # variable WALSTREAM_LOG_FORMAT\n",
			"sink: stdout # " + path + ":4\n", "delivery: exactly-once # default\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("missing: %s", want)
			}
		}
	})
}

// nasty is a password with everything that URLs, DSNs, YAML and shells mind.
const nasty = `p@:/%w'"\ ?#&=d`

// encoded is nasty as it stands in a URL of PostgreSQL, where + is a plus.
var encoded = strings.ReplaceAll(url.QueryEscape(nasty), "+", "%20")

// TestC60SecretsInConfiguration: wherever a password is given, right or wrong,
// nothing that is printed holds it, plain or encoded.
func TestC60SecretsInConfiguration(t *testing.T) {
	inURL := "postgres://app:" + encoded + "@db:5432/bank"
	inDSN := "host=db user=app dbname=bank password='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(nasty) + "'"
	sasl := []string{"--kafka-sasl-mechanism=plain", "--kafka-sasl-user=u"}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(nasty+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args, environ []string
		pg            string // PGPASSWORD
		file          string
	}{
		"URL flag":                        {args: []string{"--postgres", inURL}},
		"URL flag with =":                 {args: []string{"--postgres=" + inURL}},
		"URL variable":                    {environ: []string{"WALSTREAM_POSTGRES=" + inURL}},
		"URL file":                        {file: fmt.Sprintf("postgres: %q\n", inURL)},
		"URL parameter":                   {args: []string{"--postgres=postgres://app@db/bank?sslmode=disable&password=" + encoded}},
		"URL, encoded parameter name":     {args: []string{"--postgres=postgres://app@db/bank?pass%77ord=" + encoded}},
		"DSN flag":                        {args: []string{"--postgres", inDSN}},
		"DSN file":                        {file: fmt.Sprintf("postgres: %q\n", inDSN)},
		"PGPASSWORD":                      {pg: nasty},
		"URL not encoded":                 {args: []string{"--postgres=postgres://app:" + nasty + "@db:5432/bank"}},
		"URL, slash in the password":      {args: []string{"--postgres=postgres://app:12/" + nasty + "@db/bank"}},
		"URL, bad port":                   {args: []string{"--postgres=postgres://app:" + encoded + "@db:port/bank"}},
		"URL, bad sslmode":                {args: []string{"--postgres=" + inURL + "?sslmode=" + encoded}},
		"URL, bad target_session_attrs":   {args: []string{"--postgres=" + inURL + "?target_session_attrs=" + encoded}},
		"URL, missing CA":                 {args: []string{"--postgres=" + inURL + "?sslmode=verify-full&sslrootcert=/nonexistent"}},
		"URL, other scheme":               {args: []string{"--postgres=mysql://app:" + encoded + "@db/bank"}},
		"DSN not quoted":                  {args: []string{"--postgres=host=db password=" + nasty}},
		"DSN quote not closed":            {args: []string{"--postgres=host=db password='" + strings.ReplaceAll(nasty, "'", "")}},
		"DSN mistyped key":                {args: []string{"--postgres=host=db pasword=" + encoded}},
		"DSN unknown pass key":            {args: []string{"--postgres=host=db passphrase=" + encoded}},
		"SASL flag":                       {args: append(sasl, "--kafka-sasl-password", nasty)},
		"SASL flag, dash in front":        {args: append(sasl, "--kafka-sasl-password", "-"+nasty)},
		"SASL flag, two dashes":           {args: append(sasl, "--kafka-sasl-password", "--"+nasty)},
		"SASL flag twice":                 {args: append(sasl, "--kafka-sasl-password", "x", "--kafka-sasl-password="+nasty)},
		"SASL flag mistyped":              {args: append(sasl, "--kafka-sasl-pasword", nasty)},
		"SASL flag mistyped with =":       {args: append(sasl, "--kafka-sasl-pasword="+nasty)},
		"SASL flag not quoted":            {args: append(sasl, "--kafka-sasl-password", "x", nasty)},
		"SASL variable":                   {args: sasl, environ: []string{"WALSTREAM_KAFKA_SASL_PASSWORD=" + nasty}},
		"SASL variable without user":      {environ: []string{"WALSTREAM_KAFKA_SASL_PASSWORD=" + nasty}},
		"SASL variable mistyped":          {args: sasl, environ: []string{"WALSTREAM_KAFKA_SASL_PASWORD=" + nasty}},
		"SASL file":                       {args: sasl, file: fmt.Sprintf("kafka-sasl-password: %q\n", nasty)},
		"SASL file not quoted":            {args: sasl, file: "kafka-sasl-password: @" + nasty + "\n"},
		"SASL file, alias":                {args: sasl, file: "kafka-sasl-password: *passd\n"},
		"SASL file twice":                 {args: sasl, file: fmt.Sprintf("kafka-sasl-password: %q\nkafka-sasl-password: %q\n", nasty, nasty)},
		"SASL file nested":                {args: sasl, file: fmt.Sprintf("kafka-sasl-password: {value: %q}\n", nasty)},
		"SASL file nested elsewhere":      {args: sasl, file: fmt.Sprintf("kafka: {sasl: {password: %q}}\n", nasty)},
		"SASL file mistyped":              {args: sasl, file: fmt.Sprintf("kafka-sasl-pasword: %q\n", nasty)},
		"SASL password file":              {args: append(sasl, "--kafka-sasl-password-file", file)},
		"SASL password file and setting":  {args: append(sasl, "--kafka-sasl-password-file", file, "--kafka-sasl-password", nasty)},
		"TLS key pasted":                  {args: []string{"--kafka-tls", "--kafka-tls-cert=c.pem", "--kafka-tls-key=-----BEGIN PRIVATE KEY-----" + nasty}},
		"TLS key's file is no key":        {args: []string{"--kafka-tls", "--kafka-tls-cert=" + file, "--kafka-tls-key=" + file}},
		"TLS CA's file is no certificate": {args: []string{"--kafka-tls", "--kafka-tls-ca=" + file}},
	} {
		t.Run(name, func(t *testing.T) {
			cleanPG(t)
			t.Setenv("PGPASSWORD", c.pg)
			args := append([]string{"config", "--slot=s"}, c.args...)
			if c.file != "" {
				args = append(args, "--config", writeFile(t, c.file))
			}
			var out bytes.Buffer
			code := run(t.Context(), args, c.environ, streams{out: &out, err: &out})
			if code != exitClean && code != exitConfig {
				t.Errorf("exit code %d", code)
			}
			if out.Len() == 0 {
				t.Error("nothing was printed")
			}
			for _, piece := range leaks(out.String()) {
				t.Errorf("%q is in the output:\n%s", piece, out.String())
			}
		})
	}
}

// leaks finds pieces of nasty in text: any spelling of it, and each run of its
// characters that cannot stand there by chance.
func leaks(text string) (found []string) {
	for _, spelling := range append(spellings(nasty), `p@:/`, `%w'`, `w'"\`, `?#&=d`, "passd", "%3A%2F", "%25w", "%3a%2f") {
		if strings.Contains(text, spelling) {
			found = append(found, spelling)
		}
	}
	return found
}

func TestMaskPostgres(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct{ text, want string }{
		{"postgres://h/d", "postgres://h/d"},
		{"postgres://u@h/d?sslmode=disable", "postgres://u@h/d?sslmode=disable"},
		{"postgresql://u:secret@h:1,[::1]:2/d", "postgresql://u:***@h:1,[::1]:2/d"},
		{"postgres://u:@h/d", "postgres://u:***@h/d"},
		{"postgres://h/d?user=u&password=secret&sslmode=disable", "postgres://h/d?user=u&password=***&sslmode=disable"},
		{"postgres://u:12/secret@h/d", "***"},
		{"postgres://u:secret@h:x/d", "***"},
		{"host=h password=secret user=u", "host=h password=*** user=u"},
		{`host=h password = 'sec\'ret' user=u`, "host=h password = *** user=u"},
		{`password=sec\ ret host=h`, "password=*** host=h"},
		{"password=it's host=h", "password=*** host=h"},
		{"host=h pasword=secret", "***"},
	} {
		if got := maskPostgres(c.text); got != c.want {
			t.Errorf("%s is shown as %s, want %s", c.text, got, c.want)
		}
	}
	if got := faultsOf(t, []string{"--slot=s", "--postgres=postgres://u:12/secret@h/d"}, nil); strings.Contains(got, "secret") || !strings.Contains(got, "%2F") {
		t.Errorf("got %s", got)
	}
}

func TestRedact(t *testing.T) {
	cleanPG(t)
	c := mustLoad(t, []string{
		"--slot=s", "--postgres=postgres://app:" + encoded + "@db/bank", "--kafka-sasl-mechanism=plain", "--kafka-sasl-user=u", "--kafka-sasl-password=hunter2",
	}, nil)
	for _, text := range []string{
		"dial postgres://app:" + encoded + "@db: refused",
		url.UserPassword("app", nasty).String(),
		"password=" + nasty,
		fmt.Sprintf("%q", nasty),
		fmt.Sprintf("SASL: hunter2 %s hunter2", nasty),
	} {
		got := c.Redact(text)
		if len(leaks(got)) > 0 || strings.Contains(got, "hunter2") || !strings.Contains(got, masked) {
			t.Errorf("Redact(%q) = %q", text, got)
		}
	}
	if got := c.Redact("slot s is busy"); got != "slot s is busy" {
		t.Errorf("Redact changed %q", got)
	}
	// A password that is an ordinary word here does not garble every message.
	c = mustLoad(t, []string{"--slot=s", "--postgres=postgres://postgres:postgres@db/bank"}, nil)
	if got := c.Redact("user postgres: no"); got != "user postgres: no" {
		t.Errorf("Redact changed %q", got)
	}
}

// A short password, or one that is an ordinary word, is hidden where it stands
// for itself, and does not garble what it is a piece of.
func TestRedactShortSecrets(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct{ secret, text, want string }{
		{"p", `{"pipeline":"p.slot","port":5432}`, `{"pipeline":"***.slot","port":5432}`},
		{"p", "password=p user=up", "password=*** user=up"},
		{"p", "postgres://u:p@h/d p", "postgres://u:***@h/d ***"},
		{"p", `{"error":"two lines:\n\tp\np"}`, `{"error":"two lines:\n\t***\n***"}`}, // \n is no letter
		{"p", `u%3Ap%40h \u003cp\u003e`, `u%3A***%40h \u003c***\u003e`},
		{"p", "p", "***"},
		{"p", "pp p_ _p 1p p1 \u00e9p p\u00e9", "pp p_ _p 1p p1 \u00e9p p\u00e9"},
		{"pp", "ppp pp", "ppp ***"},
		{"secret1", "secret12 secret1", "secret12 ***"},
		{"a b", "password=a%20b or a+b or xa b", "password=*** or *** or xa b"},
		{"topic", `{"topics":1,"text":"no topic"}`, `{"topics":1,"text":"no ***"}`},
		{"level", `{"level":"info","level":"level"}`, `{"level":"info","level":"***"}`}, // the keys are ours
		{"secrets8", "xsecrets8x", "x***x"},                                             // long enough to be no chance
	} {
		conf := mustLoad(t, []string{"--slot=s", "--kafka-sasl-mechanism=plain", "--kafka-sasl-user=u", "--kafka-sasl-password=" + c.secret}, nil)
		if got := conf.Redact(c.text); got != c.want {
			t.Errorf("%q in %s: got %s, want %s", c.secret, c.text, got, c.want)
		}
	}
}
