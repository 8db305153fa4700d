package testenv

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// newestKafka is what tests run on unless WALSTREAM_TEST_KAFKA_VERSION names
// another release.
const newestKafka = "4.4.0"

func kafkaVersion() string { return cmp.Or(os.Getenv(EnvKafkaVersion), newestKafka) }

const (
	// kafkaClusterID is one for all: data directories are copies of one format.
	kafkaClusterID = "walstreamTestCluster00"
	oldestJava     = 17
)

// kafkaPom names the jars of a broker. slf4j-simple's version is that of the
// slf4j-api Kafka brings.
func kafkaPom() string {
	return `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>walstream</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion() + `</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>` + kafkaVersion() + `</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`
}

// kafkaJVM makes a broker small and quick to start; a benchmark may prefer
// other flags.
var kafkaJVM = []string{"-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// kafkaInstall is a broker's jars and the Java to run them.
type kafkaInstall struct {
	java      string
	classpath string
	archive   string // class data, which halves the start; empty while it is made
}

// foundKafka remembers how the search ended: every test of a machine without a
// network would try again.
var foundKafka once[kafkaInstall]

func findKafka(ctx context.Context) (kafkaInstall, error) {
	return foundKafka.get(func() (kafkaInstall, error) { return searchKafka(context.WithoutCancel(ctx)) })
}

// searchKafka finds Java and the jars, or fetches the jars.
func searchKafka(ctx context.Context) (kafkaInstall, error) {
	java, version, err := findJava()
	if err != nil {
		return kafkaInstall{}, err
	}
	libs, err := cached(ctx, filepath.Join("kafka", kafkaVersion()), func(dir string) error {
		return fetchJars(ctx, dir, kafkaPom())
	})
	if err != nil {
		return kafkaInstall{}, err
	}
	jars, err := filepath.Glob(filepath.Join(libs, "*.jar"))
	if err != nil || len(jars) == 0 {
		return kafkaInstall{}, fmt.Errorf("no jars in %s: %w", libs, errors.Join(err, os.ErrNotExist))
	}
	slices.Sort(jars) // the archive holds for one order of the class path
	install := kafkaInstall{java: java, classpath: strings.Join(jars, string(os.PathListSeparator))}
	name := fmt.Sprintf("%s-classes-%x", kafkaVersion(), sha256.Sum256([]byte(version+install.classpath)))[:40]
	classes, err := cached(ctx, filepath.Join("kafka", name), func(dir string) error {
		return archiveClasses(ctx, install, filepath.Join(dir, "kafka.jsa"))
	})
	if err != nil {
		return kafkaInstall{}, err
	}
	install.archive = filepath.Join(classes, "kafka.jsa")
	return install, nil
}

// KafkaClasses are what runs a tool of Kafka's: Java, and the class path of the
// brokers' jars. An UnavailableError says that they cannot be had here.
func KafkaClasses(ctx context.Context) (java, classpath string, err error) {
	install, err := findKafka(ctx)
	var shut *closedError
	if errors.As(err, &shut) {
		err = &UnavailableError{What: "tools of Kafka", Reasons: []string{err.Error()}}
	}
	return install.java, install.classpath, err
}

// findJava returns the machine's Java and what it says of itself.
func findJava() (program, version string, err error) {
	program = "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		program = filepath.Join(home, "bin", "java")
	}
	if program, err = exec.LookPath(program); err != nil {
		return "", "", closed("no java on the PATH or in JAVA_HOME")
	}
	out, err := exec.Command(program, "-version").CombinedOutput()
	if err != nil {
		return "", "", closed("%s -version: %v", program, err)
	}
	// openjdk version "17.0.15" 2025-04-15
	if _, after, ok := strings.Cut(string(out), `version "`); ok {
		major, _ := strconv.Atoi(strings.FieldsFunc(after, func(r rune) bool { return r < '0' || r > '9' })[0])
		if major < oldestJava {
			return "", "", closed("%s is Java %d; Kafka needs %d", program, major, oldestJava)
		}
	}
	return program, string(out), nil
}

// archiveClasses runs a broker once and keeps the classes it loaded.
func archiveClasses(ctx context.Context, install kafkaInstall, path string) error {
	scratch, err := newTempDir(ctx, "kafka-classes", nil)
	if err != nil {
		return err
	}
	defer scratch.remove()
	b, claimed, err := newBroker(ctx, install, filepath.Join(scratch.path, "data"))
	if err != nil {
		return err
	}
	defer claimed.release()
	b.jvm = append(slices.Clone(kafkaJVM), "-XX:ArchiveClassesAtExit="+path)
	if err := b.start(); err != nil {
		return err
	}
	k := &Kafka{Brokers: []string{address(b.port)}}
	err = k.ready(ctx)
	if stopErr := b.stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return fmt.Errorf("first run of Kafka: %w\n%s", err, tail(b.logPath()))
	}
	return nil
}

// formatKafka returns the formatted data directory of a node, to be copied.
func formatKafka(ctx context.Context, install kafkaInstall, node int) (string, error) {
	name := filepath.Join("kafka", fmt.Sprintf("%s-node-%d", kafkaVersion(), node))
	dir, err := cached(ctx, name, func(dir string) error {
		properties := filepath.Join(dir, "format.properties")
		// The controller's address is no part of the format.
		text := fmt.Sprintf("process.roles=broker,controller\nnode.id=%d\ncontroller.quorum.voters=%d@127.0.0.1:1\n"+
			"controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\nlog.dirs=%s\n",
			node, node, filepath.ToSlash(filepath.Join(dir, "data")))
		if err := os.WriteFile(properties, []byte(text), 0o644); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, install.java, slices.Concat(kafkaJVM, []string{
			"-cp", install.classpath, "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", properties,
		})...)
		confine(cmd, nil, syscall.SIGKILL)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("format Kafka's storage: %w\n%s", err, out)
		}
		return nil
	})
	return filepath.Join(dir, "data"), err
}

// listening says whether somebody accepts connections.
func listening(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
