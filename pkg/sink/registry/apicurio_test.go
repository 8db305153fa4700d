package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/outbox"
)

const apicurioPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>apicurio</artifactId><version>1</version>
<dependencies><dependency><groupId>io.apicurio</groupId><artifactId>apicurio-registry-app</artifactId><version>%s</version>
<type>tar.gz</type><classifier>all</classifier><exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency></dependencies></project>`

// The newest Apicurio needs Java 21; the line before it runs on 17, which
// PostgreSQL's and Kafka's tests make do with.
const (
	apicurioNewest = "3.3.3"
	apicurioJava17 = "2.6.13.Final"
)

// apicurio starts one, or takes the one that the variable names.
func apicurio(t *testing.T) (url string) {
	t.Helper()
	if url = os.Getenv("WALSTREAM_TEST_REGISTRY"); url != "" && url != "apicurio" {
		return url
	}
	if url == "" {
		t.Skip("Apicurio is 160 MB and starts in 10 s: make registry-test, or WALSTREAM_TEST_REGISTRY=apicurio or a URL")
	}
	version := apicurioJava17
	java, err := exec.LookPath("java")
	if found, _ := filepath.Glob("/usr/lib/jvm/temurin-2*/bin/java"); len(found) > 0 {
		version, java, err = apicurioNewest, found[0], nil
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := testenv.Jars(t.Context(), "apicurio-"+version, fmt.Sprintf(apicurioPOM, version))
	if err != nil {
		testenv.SkipOrFail(t, err)
	}
	archives, _ := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if len(archives) != 1 {
		t.Fatalf("no archive: %v", archives)
	}
	t.Logf("Apicurio %s with %s", version, java)
	app := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "xzf", archives[0], "-C", app).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	starters, _ := filepath.Glob(filepath.Join(app, "*run*.jar"))
	if len(starters) != 1 {
		t.Fatalf("nothing to start Apicurio by: %v", starters)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), java, "-Xmx512m", "-Dquarkus.http.host=127.0.0.1",
		fmt.Sprintf("-Dquarkus.http.port=%d", port), "-jar", starters[0])
	cmd.Dir = app
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url = fmt.Sprintf("http://127.0.0.1:%d/apis/ccompat/v7", port)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if resp, err := http.Get(url + "/subjects"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return url
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("Apicurio does not start within a minute")
		}
	}
}

// TestApicurio: what the fake says, a real registry says too, and more: it refuses
// what does not go with what it has.
func TestApicurio(t *testing.T) {
	r, err := New(Config{URLs: []string{apicurio(t)}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	subject := fmt.Sprintf("deposits-%d", time.Now().UnixNano())
	values := map[string]struct {
		text    string
		message string
		good    []byte
		bad     []byte
	}{
		"avro":     {avroText, "", avroValue(t), append(avroValue(t), 0)},
		"json":     {jsonText, "", []byte(`{"amount": 1}`), []byte(`{"amount": "x"}`)},
		"protobuf": {protoV1, "bank.Deposit", field(2, 12), field(2, "x")},
	}
	for format, v := range values {
		ours := outbox.Schema{Format: format, Text: v.text, Message: v.message, Check: true}
		at := outbox.SchemaAt{Subject: subject + "-" + format}
		made, err := r.Find(t.Context(), ours, at)
		if err != nil {
			t.Errorf("register %s: %v", format, err)
			continue
		}
		ours.Text = ""
		for _, at := range []outbox.SchemaAt{at, {Subject: at.Subject, Version: 1}, {ID: made.ID()}} {
			found, err := r.Find(t.Context(), ours, at)
			if err != nil || string(found.Prefix()) != string(made.Prefix()) {
				t.Errorf("%s: found %v, made %v: %v", Name(at), found, made, err)
				continue
			}
			if good, bad := found.Check(v.good), found.Check(v.bad); good != nil || bad == nil {
				t.Errorf("%s: good %v, bad %v", Name(at), good, bad)
			}
		}
	}
	for _, at := range []outbox.SchemaAt{{Subject: "nope"}, {Subject: subject + "-avro", Version: 99}, {ID: 1 << 20}} {
		_, err := r.Find(t.Context(), outbox.Schema{Format: "avro"}, at)
		if _, unknown := errors.AsType[*UnknownError](err); !unknown {
			t.Errorf("%s: %v", Name(at), err)
		}
	}
	if err := r.client.SetCompatibility(t.Context(), sr.SetCompatibility{Level: sr.CompatBackward}, subject+"-avro")[0].Err; err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(avroText, `"long"`, `"boolean"`, 1)
	_, err = r.Find(t.Context(), outbox.Schema{Format: "avro", Text: other}, outbox.SchemaAt{Subject: subject + "-avro"})
	if setup, ok := errors.AsType[*SetupError](err); !ok || !strings.Contains(setup.Remedy, "compatibility") {
		t.Errorf("an incompatible schema: %v", err)
	}
}
