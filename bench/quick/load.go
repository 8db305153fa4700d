package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

const (
	loaders  = 2
	accounts = 10_000
)

// loadRows writes rows 1..n, each INSERT a transaction of its own: one WAL record
// for each row, as applications write them (COPY would join them).
func loadRows(ctx context.Context, dsn string, n, perTx int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for i := range loaders {
		running.Go(func() {
			if err := loader(ctx, dsn, n, perTx, &next, rand.NewChaCha8([32]byte{byte(i + 1)})); err != nil {
				cancel(err) // the first one counts
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// loader takes the next transaction again and again.
func loader(ctx context.Context, dsn string, n, perTx int, next *atomic.Int64, source *rand.ChaCha8) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for {
		last := int(next.Add(int64(perTx)))
		first := last - perTx + 1
		if first > n {
			return nil
		}
		if err := insert(ctx, conn, source, first, min(last, n)); err != nil {
			return err
		}
	}
}

func insert(ctx context.Context, conn *pgx.Conn, source *rand.ChaCha8, first, last int) error {
	keys := make([]string, 0, last-first+1)
	payloads := make([][]byte, 0, last-first+1)
	for number := first; number <= last; number++ {
		key := fmt.Sprintf("00000000-0000-4000-8000-%012d", number%accounts)
		keys = append(keys, key)
		payloads = append(payloads, payload(number, key, source))
	}
	_, err := conn.Exec(ctx, `
		INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, key, payload, headers)
		SELECT 'account', key::uuid, 'deposited', '`+topic+`', convert_to(key, 'UTF8'), payload, '{"source":"bench"}'
		FROM unnest($1::text[], $2::bytea[]) AS rows (key, payload)`, keys, payloads)
	return err
}

const numberPrefix, noteSuffix = `{"number":`, `"}`

// payload is JSON with its number in front, filled with random hexadecimal
// digits: they compress to half, as identifiers and amounts in life do.
func payload(number int, key string, source *rand.ChaCha8) []byte {
	text := make([]byte, 0, payloadSize+1)
	text = fmt.Appendf(text, numberPrefix+`%d,"account":%q,"note":"`, number, key)
	digits := payloadSize - len(text) - len(noteSuffix)
	random := make([]byte, (digits+1)/2)
	_, _ = source.Read(random) // never fails
	text = hex.AppendEncode(text, random)[:payloadSize-len(noteSuffix)]
	return append(text, noteSuffix...)
}

// numberOf reads the number back; 0 when it is not there.
func numberOf(value []byte) int {
	if len(value) != payloadSize || string(value[:len(numberPrefix)]) != numberPrefix {
		return 0
	}
	digits := value[len(numberPrefix):]
	end := 0
	for end < len(digits) && digits[end] >= '0' && digits[end] <= '9' {
		end++
	}
	number, _ := strconv.Atoi(string(digits[:end]))
	return number
}
