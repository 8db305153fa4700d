package sink

import (
	"bufio"
	"encoding/base64"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Keys and where the producer of Kafka's Java client sends them; written by
// bench/parity -partitions.
const javaPartitions = "testdata/partitions.txt"

func TestPartitionerEqualsJavaProducer(t *testing.T) {
	file, err := os.Open(javaPartitions)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := partitioner{keyed: kgo.StickyKeyPartitioner(nil)}.ForTopic("t")
	lines := bufio.NewScanner(file)
	if !lines.Scan() {
		t.Fatalf("%s is empty: %v", javaPartitions, lines.Err())
	}
	counts := strings.Fields(lines.Text())[1:]
	keys := 0
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(fields[0], "="))
		if err != nil || len(fields) != 1+len(counts) {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		keys++
		for i, count := range counts {
			want := number(t, fields[1+i])
			if got := p.Partition(&kgo.Record{Key: key, Partition: -1}, number(t, count)); got != want {
				t.Errorf("key %q of %s: partition %d, the Java producer takes %d", key, count, got, want)
			}
		}
	}
	if err := lines.Err(); err != nil || keys < 200 || len(counts) < 5 {
		t.Errorf("%d keys, %d counts of partitions (%v): too few to mean anything", keys, len(counts), err)
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
