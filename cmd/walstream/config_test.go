package main

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pglogrepl"
)

// TestPrecedence goes through every subset of the three places.
func TestPrecedence(t *testing.T) {
	cleanPG(t)
	for _, s := range []struct{ name, file, variable, flag, fallback string }{
		{"stall-timeout", "11s", "12s", "13s", "1m"},
		{"kafka-brokers", "[a:1, b:2]", "c:1,d:2", "e:1", "localhost:9092"},
		{"kafka-compression", "gzip", "snappy", "lz4", "none"},
		{"max-in-flight-bytes", "1MiB", "2MiB", "3MiB", "32MiB"},
		{"table", "a.b", "c.d", "e.f", "public.outbox"},
		{"accept-lost-tail", "0/1", "0/2", "0/3", ""},
		{"create-topics", "true", "false", "true", "false"},
	} {
		for subset := range 8 {
			t.Run(fmt.Sprintf("%s/%03b", s.name, subset), func(t *testing.T) {
				args, environ := []string{"--slot", "s"}, []string(nil)
				want, origin := s.fallback, "default"
				if subset&1 != 0 {
					path := writeFile(t, s.name+": "+s.file+"\n")
					args = append(args, "--config", path)
					want, origin = strings.NewReplacer("[", "", "]", "", " ", "").Replace(s.file), path+":1"
				}
				if subset&2 != 0 {
					environ = append(environ, variableOf(s.name)+"="+s.variable)
					want, origin = s.variable, "variable "+variableOf(s.name)
				}
				if subset&4 != 0 {
					args = append(args, "--"+s.name+"="+s.flag)
					want, origin = s.flag, "flag --"+s.name
				}
				c := mustLoad(t, args, environ)
				if got := formatValue(c.report.flags[s.name].Target); got != want {
					t.Errorf("value %q, want %q", got, want)
				}
				if got := c.report.origin(s.name); got != origin {
					t.Errorf("origin %q, want %q", got, origin)
				}
			})
		}
	}
}

// TestOverruledFault: what a stronger place overrules need not be right.
func TestOverruledFault(t *testing.T) {
	cleanPG(t)
	path := writeFile(t, "stall-timeout: 5\n")
	c := mustLoad(t, []string{"--slot=s", "--config", path}, []string{"WALSTREAM_STALL_TIMEOUT=7s"})
	if c.StallTimeout != 7*time.Second {
		t.Errorf("stall-timeout is %v", c.StallTimeout)
	}
}

func TestConfigFileByVariable(t *testing.T) {
	cleanPG(t)
	byVariable, byFlag := writeFile(t, "slot: from_variable\n"), writeFile(t, "slot: from_flag\n")
	if c := mustLoad(t, nil, []string{"WALSTREAM_CONFIG=" + byVariable}); c.Slot != "from_variable" {
		t.Errorf("slot is %q", c.Slot)
	}
	if c := mustLoad(t, []string{"--config", byFlag}, []string{"WALSTREAM_CONFIG=" + byVariable}); c.Slot != "from_flag" {
		t.Errorf("slot is %q", c.Slot)
	}
}

// sample is a value of a setting that is valid and not its default.
func sample(t *testing.T, f *kong.Flag) string {
	switch f.Name {
	case "postgres":
		return "host=h user=u dbname=d"
	case "topic-pattern":
		return "t.{c}"
	case "http-listen", "kafka-brokers":
		return "127.0.0.1:1234"
	case "accept-server":
		return "7301234567890123456"
	}
	if values := strings.Split(f.Tag.Get("values"), ","); len(values) > 1 {
		for _, v := range values {
			if v != "" && v != f.Default {
				return v
			}
		}
	}
	switch f.Target.Interface().(type) {
	case bool:
		return "true"
	case int:
		return "3"
	case time.Duration:
		return "3s"
	case Size:
		return "3MiB"
	case pglogrepl.LSN:
		return "16/B374D848"
	case LSNRange:
		return "16/B374D848..17/0"
	case Table:
		return `"A b".c`
	}
	if f.Default != "" {
		return f.Default
	}
	return "word"
}

// TestEverySettingFromEveryPlace: a new line in Config's table is read from all
// three places, and reads back from what formatValue writes.
func TestEverySettingFromEveryPlace(t *testing.T) {
	cleanPG(t)
	inv, _ := load(nil, nil)
	for _, f := range inv.config.report.settings {
		text := sample(t, f)
		path := writeFile(t, f.Name+": '"+text+"'\n")
		for origin, in := range map[string]struct{ args, environ []string }{
			"flag --" + f.Name:               {args: []string{"--" + f.Name, text}},
			"variable " + variableOf(f.Name): {environ: []string{variableOf(f.Name) + "=" + text}},
			path + ":1":                      {args: []string{"--config", path}},
		} {
			if f.IsBool() && in.args != nil && in.args[0] == "--"+f.Name {
				in.args = in.args[:1]
			}
			inv, err := load(in.args, in.environ)
			r := inv.config.report
			if err != nil && strings.Contains(err.Error(), "is no setting") {
				t.Errorf("%s: %v", origin, err)
			}
			if got := formatValue(r.flags[f.Name].Target); got != text {
				t.Errorf("%s from %s is %q, want %q", f.Name, origin, got, text)
			}
			if got := r.origin(f.Name); got != origin {
				t.Errorf("%s: origin %q, want %q", f.Name, got, origin)
			}
		}
	}
}

// TestPrintedConfigIsAConfigFile: what walstream config prints, read as a file,
// gives the same settings.
func TestPrintedConfigIsAConfigFile(t *testing.T) {
	cleanPG(t)
	for name, in := range map[string]struct {
		args []string
		file string
	}{
		"defaults": {args: []string{"--slot", "bank_outbox_slot"}},
		"many": {args: []string{
			"--slot=s", "--pipeline=a.B-c", "--postgres=host=h dbname='a b'", "--publication=P \"q\"", "--table", `"A.b"."c""d"`,
			"--topic-pattern=t.{c}", "--header-columns=a,X=b", "--kafka-brokers=a:1,[::1]:2", "--create-topics", "--topic-partitions=6",
			"--stall-timeout=1h", "--shutdown-grace=90s", "--max-in-flight-bytes=1000001B", "--accept-gap=0/1..0/2", "--adopt-slot=A/B",
		}},
		"emptied":          {args: []string{"--slot=s", "--preset=bank", "--header-columns="}},
		"outboxes emptied": {args: []string{"--slot=s"}, file: "outboxes:\n- {table: a.b, header-columns: []}\n- table: c.d\n  header-columns:\n- table: e.f\n"},
		"outboxes":         {args: []string{"--slot=s"}, file: "outboxes:\n- table: a.b\n  header-columns: [x, y=z, \"a=b,c \", '\"q\"=d']\n- {table: c.d, preset: bank, topic: t}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			args := in.args
			if in.file != "" {
				args = append(args, "--config", writeFile(t, in.file))
			}
			first := mustLoad(t, args, nil)
			var out bytes.Buffer
			if err := printConfig(&out, first); err != nil {
				t.Fatal(err)
			}
			second := mustLoad(t, []string{"--config", writeFile(t, out.String())}, nil)
			first.report, second.report = nil, nil
			if !reflect.DeepEqual(first, second) {
				t.Errorf("read back:\n%+v\nwas:\n%+v\nprinted:\n%s", second, first, out.String())
			}
		})
	}
}

// TestHeaderColumnsEmptied: given without a column, by whatever means, none is left of
// the preset's; not given, they stay.
func TestHeaderColumnsEmptied(t *testing.T) {
	cleanPG(t)
	preset := []string{"--slot=s", "--preset=relay"}
	file := func(text string) []string { return append(preset, "--config="+writeFile(t, text)) }
	for name, c := range map[string]struct {
		args, environ []string
		emptied       bool
	}{
		"not given":          {preset, nil, false},
		"flag":               {append(preset, "--header-columns="), nil, true},
		"variable":           {preset, []string{"WALSTREAM_HEADER_COLUMNS="}, true},
		"file, empty list":   {file("header-columns: []"), nil, true},
		"file, null":         {file("header-columns:"), nil, true},
		"the first counts":   {append(file("header-columns: [a]"), "--header-columns="), nil, true},
		"a flag is no empty": {append(file("header-columns: []"), "--header-columns=tenant_id"), nil, false},
	} {
		columns := mustLoad(t, c.args, c.environ).mappingConfigs()[0].HeaderColumns
		if emptied := columns != nil && len(columns) == 0; emptied != c.emptied {
			t.Errorf("%s: header columns %#v", name, columns)
		}
	}
	many := mustLoad(t, append([]string{"--slot=s"}, "--config="+writeFile(t, "outboxes:\n- {table: a.b, preset: bank, header-columns: []}\n- {table: c.d, preset: bank}")), nil).mappingConfigs()
	if many[0].HeaderColumns == nil || many[1].HeaderColumns != nil {
		t.Errorf("header columns %#v and %#v", many[0].HeaderColumns, many[1].HeaderColumns)
	}
}

func TestDerivedNames(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct{ args, pipeline, publication string }{
		{"--slot=bank_outbox_slot --postgres=dbname=bank", "bank.bank_outbox_slot", "bank_outbox_pub"},
		{"--slot=orders --postgres=postgres://u@h/shop", "shop.orders", "orders_pub"},
		{"--slot=s --postgres=host=h", "app.s", "s_pub"}, // no database: the user's name, as in libpq
		{"--slot=_slot --postgres=dbname=b", "b._slot", "_pub"},
		{"--slot=s --pipeline=p --publication=q", "p", "q"},
	} {
		config := mustLoad(t, strings.Fields(c.args), nil)
		if config.Pipeline != c.pipeline || config.Publication != c.publication {
			t.Errorf("%s: pipeline %q, publication %q", c.args, config.Pipeline, config.Publication)
		}
	}
	if got := faultsOf(t, []string{"--slot=s", "--postgres=dbname='größe 1'"}, nil); !strings.Contains(got, "choose another with --pipeline") {
		t.Errorf("no way out in: %s", got)
	}
	long := strings.Repeat("x", 63)
	if got := faultsOf(t, []string{"--slot=" + long}, nil); !strings.Contains(got, "choose another with --publication") {
		t.Errorf("no way out in: %s", got)
	}
}

func TestRefused(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct{ args, want string }{
		{"", "slot (default): is required: --slot NAME, WALSTREAM_SLOT or slot: in the file"},
		{"--slot=", "slot (flag --slot): is required"},
		{"--slot=Bank", `slot = "Bank" (flag --slot): is no slot name`},
		{"--slot=a-b", "is no slot name"},
		{"--slot=" + strings.Repeat("a", 64), "is no slot name"},
		{"--slot", "slot (flag --slot): needs a value"},
		{"--slot --pipeline=p", "slot (flag --slot): needs a value"},
		{"--slot=a --slot=b", "is given twice"},
		{"--slot=a -slot=b", "-slot (flag): is no setting; nearest: --slot"},
		{"--slot=a --Sink=stdout", "--Sink (flag): is no setting; nearest: --sink"},
		{"--slot=a --delivery=once", "is not known; allowed: exactly-once, at-least-once"},
		{"--slot=a --on-poison=drop", "is not known; allowed: stop, dead-letter, skip"},
		{"--slot=a --snapshot=first", "is not known; allowed: never, initial, only"},
		{"--slot=a --snapshot-where=true", "has no effect with --snapshot never"},
		{"--slot=a --from-standby --slot-failover", "(flag --slot-failover): does not go with --from-standby"},
		{"--slot=a --from-standby --snapshot=initial", "does not go with --from-standby: a snapshot is read from the primary"},
		{"--slot=a --from-standby --retention=7d", "a server in recovery takes no writes"},
		{"--slot=a --from-standby --rewind-window=1h", "does not go with --from-standby: rewind slots"},
		{"--slot=a --from-standby --postgres=postgres://h1,h2/d", "needs an address of one server"},
		{"--slot=a --snapshot=initial --sink=stdout", "has no effect: --sink stdout shows the stream only"},
		{"--slot=a --topics-allowed=a,größe*", "(flag --topics-allowed): holds what is no pattern"},
		{"--slot=a --topic-config=retention.ms=1", "(flag --topic-config): has no effect without --create-topics"},
		{"--slot=a --create-topics --topic-config=retention", "(flag --topic-config): is no list of KEY=VALUE"},
		{"skip --slot=a", "position (default): is required"},
		{"skip --slot=a --position=0/1", "is no position"},
		{"--slot=a --position=0/1#1", "--position (flag): is a flag of: walstream skip"},
		{"config --slot=a --json", "--json (flag): is a flag of: walstream check, walstream status, walstream audit, walstream replay, walstream recover, walstream prune, walstream dead-letters"},
		{"dead-letters --slot=a", "is followed by list, show or retry"},
		{"dead-letters lost --slot=a", "neither a flag nor a command"},
		{"dead-letters show --slot=a", "id (default): is required"},
		{"dead-letters retry --slot=a --id=1 --all", "or --all is required, and not both"},
		{"--slot=a --preset=relays", "is not known; allowed: bank, relay, events, debezium"},
		{"--slot=a --route-column=c --route-regex=(", `route-regex = "(" (flag --route-regex): route-regex "(" is no regular expression`},
		{"--slot=a --route-regex=(.*)", "route-column"},
		{"--slot=a --route-column=c --topic=t", "exclude each other"},
		{"--slot=a --tombstone=yes", "allowed: on-null, on-empty, on-blank, never"},
		{"--slot=a --envelope-payload=json", "has no effect without envelope-columns"},
		{"--slot=a --header-constants=x", "is not HEADER=TEXT"},
		{"--slot=a --preset=bank --idempotency-key=derived", "set id-column"},
		{"--slot=a --commit-intervall=5ms", "--commit-intervall (flag): is no setting; nearest: --commit-interval"},
		{"--slot=a --acks=1", "walstream always waits for all in-sync replicas"},
		{"--slot=a --outboxes=x", "in the file only"},
		{"--slot=a --status-interval=6s", `status-interval = "6s" (flag --status-interval): is out of range; allowed: 10ms to 5s`},
		{"--slot=a --status-interval=5", "has no unit: 5s or 5ms?; allowed: 10ms to 5s"},
		{"--slot=a --status-interval=", "is empty"},
		{"--slot=a --stall-timeout=1s", "must be longer than status-interval, 5s"},
		{"--slot=a --max-in-flight-bytes=33554432", "has no unit"},
		{"--slot=a --max-in-flight-bytes=1KiB", "allowed: 64KiB to 16GiB"},
		{"--slot=a --log-level=trace", "allowed: debug, info, warn, error"},
		{"--slot=a --create-topics=yes", "is neither true nor false"},
		{"--slot=a --topic-partitions=6", "has no effect without --create-topics"},
		{"--slot=a --create-topics --topic-partitions=-1", "allowed: 0 to 10000"},
		{"--slot=a --create-topics --topic-partitions=six", "is not a whole number"},
		{"--slot=a --kafka-brokers=", "is empty"},
		{"--slot=a --kafka-brokers=kafka", "is not host:port"},
		{"--slot=a --kafka-brokers=a:1,,b:2", "is empty"},
		{"--slot=a --kafka-brokers=::1", "an IPv6 address is written [::1]:9092"},
		{"--slot=a --kafka-brokers=kafka://a:1", "has a scheme"},
		{"--slot=a --kafka-brokers=a:0", "a number from 1 to 65535"},
		{"--slot=a --http-listen=9475", "is not host:port"},
		{"--slot=a --http-listen=", "is empty"},
		{"--slot=a --http-listen=:9475", "is beyond this machine: add --http-token-file FILE"},
		{"--slot=a --http-listen=0.0.0.0:9475", "is beyond this machine"},
		{"--slot=a --http-listen=[::]:9475", "is beyond this machine"},
		{"--slot=a --http-listen=walstream:9475", "is beyond this machine"},
		{"--slot=a --http-listen=:9475 --http-token-file=/nonexistent", "http-token-file = \"/nonexistent\" (flag --http-token-file): cannot be read"},
		{"--slot=a --http-tls-cert=c", "needs http-tls-key beside it"},
		{"--slot=a --http-tls-ca=c", "has no effect without --http-tls-cert"},
		{"--slot=a --postgres-password-file=/nonexistent", "cannot be read"},
		{"--slot=a --postgres=postgres://u:p@h/d --postgres-password-file=x", "does not go with a password in postgres"},
		{"--slot=a --table=Outbox", "put it in double quotes"},
		{"--slot=a --table=a.b.c", "more than the two parts"},
		{`--slot=a --table="a`, "double quote that does not close"},
		{"--slot=a --topic=a/b", "is no topic name"},
		{"--slot=a --topic=..", "is no topic name"},
		{"--slot=a --topic=t --topic-pattern={c}", "does not go with topic"},
		{"--slot=a --topic=t --route-regex=(.*)", `route-regex = "(.*)" (flag --route-regex): route-regex and topic or topic-pattern exclude each other`},
		{"--slot=a --topic-pattern=plain", "topic-pattern"},
		{"--slot=a --topic-pattern=a.{c", "topic-pattern"},
		{"--slot=a --topic-pattern=a/{c}", "makes no topic name"},
		{"--slot=a --header-columns=a,=b", "header-columns"},
		{"--slot=a --adopt-slot=12", "is not an LSN"},
		{"--slot=a --adopt-slot=0/0", "is not an LSN"},
		{"--slot=a --accept-gap=0/1", "is not two LSNs"},
		{"--slot=a --accept-gap=0/2..0/1", "ends before it begins"},
		{"--slot=a --accept-server=main", "is no system identifier"},
		{"--slot=a --pipeline=a/b", "names topics"},
		{"--slot=a --kafka-tls-ca=x", "has no effect without --kafka-tls"},
		{"--slot=a --kafka-tls --kafka-tls-ca=/nonexistent", "cannot be read"},
		{"--slot=a --kafka-tls --kafka-tls-ca=-----BEGIN", `kafka-tls-ca = "***" (flag --kafka-tls-ca): wants the path of a PEM file`},
		{"--slot=a --kafka-tls --kafka-tls-cert=x", "needs kafka-tls-key"},
		{"--slot=a --kafka-tls --kafka-tls-key=x", "needs kafka-tls-cert"},
		{"--slot=a --kafka-sasl-user=u", "has no effect without --kafka-sasl-mechanism"},
		{"--slot=a --kafka-sasl-mechanism=gssapi", "allowed: plain, scram-sha-256, scram-sha-512"},
		{"--slot=a --kafka-sasl-mechanism=oauthbearer", "kafka-sasl-token-file (default): is required by oauthbearer, or kafka-sasl-token-url"},
		{"--slot=a --kafka-sasl-mechanism=oauthbearer --kafka-sasl-token-file=/nonexistent", "cannot be read"},
		{"--slot=a --kafka-sasl-mechanism=oauthbearer --kafka-sasl-token-file=a --kafka-sasl-token-url=https://b", "choose one"},
		{"--slot=a --kafka-sasl-mechanism=oauthbearer --kafka-sasl-token-file=a --kafka-sasl-user=u", "has no effect without --kafka-sasl-token-url"},
		{"--slot=a --kafka-sasl-mechanism=oauthbearer --kafka-sasl-token-url=https://b", "kafka-sasl-user (default): is required by kafka-sasl-token-url"},
		{"--slot=a --kafka-sasl-mechanism=oauthbearer --kafka-sasl-token-url=http://login.example.com/token", "would go out in clear"},
		{"--slot=a --kafka-sasl-mechanism=oauthbearer --kafka-sasl-token-url=https://u:p@login.example.com/token", "is no URL such as"},
		{"--slot=a --kafka-sasl-mechanism=plain --kafka-sasl-token-file=a", "has no effect without --kafka-sasl-mechanism oauthbearer"},
		{"--slot=a --kafka-sasl-mechanism=aws-msk-iam --kafka-sasl-user=u", "has no effect with aws-msk-iam"},
		{"--slot=a --kafka-sasl-mechanism=plain", "kafka-sasl-user (default): is required by kafka-sasl-mechanism"},
		{"--slot=a --kafka-sasl-mechanism=plain --kafka-sasl-user=u", "is required by kafka-sasl-mechanism"},
		{"--slot=a --kafka-sasl-mechanism=plain --kafka-sasl-user=u --kafka-sasl-password=***", "is the mask"},
		{"--slot=a --kafka-sasl-mechanism=plain --kafka-sasl-user=u --kafka-sasl-password-file=/nonexistent", "cannot be read"},
		{"--slot=a --kafka-sasl-mechanism=plain --kafka-sasl-user=u --kafka-sasl-password=x --kafka-sasl-password-file=y", "choose one"},
		{"--slot=a --config=", "is empty: name a file"},
		{"--slot=a --config=/nonexistent", "/nonexistent (flag --config): cannot be read"},
		{"--slot=a chekc", `"chekc" is no command; nearest: check`},
		{"--slot=a check config", "commands are check, setup, status, pause, resume, audit, replay, recover, prune, dead-letters, skip, drop, config, version"},
		{"--slot=a --postgres=dbname", "is neither a URL"},
		{"--slot=a --postgres=postgres://u@h:x/d", "has a port"},
		{"--slot=a --postgres=pasword=x", "nearest: password"},
		{"--slot=a --postgres=sslmode=strict", "sslmode is invalid"},
		{"--slot=a --postgres=target_session_attrs=rw", "target_session_attrs"},
	} {
		if got := faultsOf(t, strings.Fields(c.args), nil); !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwant: %s", c.args, got, c.want)
		}
	}
}

// One fault of a table's mapping does not hide the others.
func TestMappingFaultsAtOnce(t *testing.T) {
	cleanPG(t)
	got := faultsOf(t, []string{
		"--slot=s", "--topic=a b", "--schema-format=avro", "--tombstone=maybe", "--route-regex=(x", "--route-column=c",
		"--header-constants=a=b,walstream-position=x,=v", "--envelope-payload=json",
	}, nil)
	for _, want := range []string{
		"has 7 faults", "is no topic name", "schema-format", "tombstone", "route-regex", `walstream's own: "walstream-position"; header-constants: "=v" is not HEADER=TEXT`,
		"route-column", "envelope-payload",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant: %s", got, want)
		}
	}
}

func TestAccepted(t *testing.T) {
	cleanPG(t)
	for _, args := range []string{
		"--kafka-brokers=[::1]:9092,a.b-c:1 --http-listen=[::1]:0",
		"--postgres=postgres://u@[::1]:5432/d",
		"--postgres=postgres://u@a:1,b:2/d?target_session_attrs=read-write",
		"--postgres=postgres:///d?host=/var/run/postgresql",
		"--topic=t --topic-column=c",
		"--topic-column=c --topic-pattern=outbox.{a}.{b}",
		"--preset=bank --key-column=aggregate_id",
		"--sink=stdout --kafka-brokers=a:1 --create-topics",
		"--topic= --preset= --adopt-slot=", // empty where empty is the default
		"--shutdown-grace=0s --max-in-flight-bytes=1GB",
	} {
		mustLoad(t, append([]string{"--slot=s"}, strings.Fields(args)...), nil)
	}
}

// TestPipelineCannotBeDerived: in a container without users, PostgreSQL's
// settings may name neither user nor database.
func TestPipelineCannotBeDerived(t *testing.T) {
	cleanPG(t)
	c := mustLoad(t, []string{"--slot=s"}, nil)
	c.Pipeline, c.report.origins = "", map[string]string{}
	c.derive("")
	c.checkNames()
	if err := c.report.err(); err == nil || !strings.Contains(err.Error(), "or --pipeline") {
		t.Errorf("got %v", err)
	}
}

// TestHelpFitsAScreen of 24 lines and 100 columns.
func TestHelpFitsAScreen(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, nil, streams{out: &out, err: &out}); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	if n := strings.Count(out.String(), "\n"); n > 24 {
		t.Errorf("%d lines", n)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 100 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// TestHelpOfCommandsFitsAScreen of 34 lines and 100 columns.
func TestHelpOfCommandsFitsAScreen(t *testing.T) {
	inv, _ := load(nil, nil)
	for _, command := range inv.config.report.commands {
		var out bytes.Buffer
		if code := run(t.Context(), []string{command, "--help"}, nil, streams{out: &out, err: &out}); code != 0 {
			t.Fatalf("%s: exit code %d: %s", command, code, out.String())
		}
		if n := strings.Count(out.String(), "\n"); n > 38 {
			t.Errorf("%s: %d lines", command, n)
		}
		for line := range strings.Lines(out.String()) {
			if len(strings.TrimRight(line, " \n")) > 100 {
				t.Errorf("%s: %d columns: %s", command, len(line), line)
			}
		}
	}
	for _, c := range inv.model.Children {
		if c.Help == "" {
			t.Errorf("%s has no help", c.Name)
		}
		for _, f := range c.Flags {
			if f.Help == "" {
				t.Errorf("%s --%s has no help", c.Name, f.Name)
			}
		}
	}
}

// TestSettingsAreListed: each with its help, for whoever wants to know more than
// the names.
func TestSettingsAreListed(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"config", "--settings"}, nil, streams{out: &out, err: &out}); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	inv, _ := load(nil, nil)
	for _, f := range inv.config.report.settings {
		if !strings.Contains(out.String(), "  --"+f.Name+" ") || !strings.Contains(out.String(), f.Help) {
			t.Errorf("--%s is not there", f.Name)
		}
	}
}

func TestHelpIsGivenToWhoeverAsks(t *testing.T) {
	for _, args := range []string{"-h", "--help", "help", "--slot-nmae x --help", "check -h", "config --help"} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), []string{"WALSTREAM_X=1"}, streams{out: &out, err: &errs}); code != 0 || errs.Len() > 0 {
			t.Errorf("%s: exit code %d: %s", args, code, errs.String())
		}
		if !strings.Contains(out.String(), "--slot NAME") {
			t.Errorf("%s: %s", args, out.String())
		}
	}
}

func TestEverySettingIsInTheHelp(t *testing.T) {
	var out bytes.Buffer
	run(t.Context(), []string{"config", "--help"}, nil, streams{out: &out, err: &out})
	inv, _ := load(nil, nil)
	for _, f := range inv.config.report.settings {
		if !strings.Contains(out.String(), "  --"+f.Name+" ") || f.Help == "" || f.Group == nil {
			t.Errorf("--%s has no help or no group", f.Name)
		}
	}
}
