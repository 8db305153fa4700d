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
	// statementRows bounds the rows of one INSERT, whose parameters the server and
	// its client hold whole.
	statementRows = 2000
)

// loadRows writes the rows of a work: one WAL record for each row, as applications
// write them (COPY would join them).
func loadRows(ctx context.Context, dsn string, job work, topics []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for i := range loaders {
		running.Go(func() {
			if err := loader(ctx, dsn, job, topics, &next, rand.NewChaCha8([32]byte{byte(i + 1)})); err != nil {
				cancel(err) // the first one counts
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// loader takes the next transaction again and again.
func loader(ctx context.Context, dsn string, job work, topics []string, next *atomic.Int64, source *rand.ChaCha8) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for {
		last := int(next.Add(int64(job.PerTx)))
		first := last - job.PerTx + 1
		if first > job.Rows {
			return nil
		}
		if err := transaction(ctx, conn, job, topics, source, first, min(last, job.Rows)); err != nil {
			return err
		}
	}
}

// transaction is one INSERT where that holds its rows.
func transaction(ctx context.Context, conn *pgx.Conn, job work, topics []string, source *rand.ChaCha8, first, last int) error {
	if last-first < statementRows {
		return insert(ctx, conn, job, topics, source, first, last)
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for at := first; at <= last; at += statementRows {
			if err := insert(ctx, tx.Conn(), job, topics, source, at, min(at+statementRows-1, last)); err != nil {
				return err
			}
		}
		return nil
	})
}

func insert(ctx context.Context, conn *pgx.Conn, job work, topics []string, source *rand.ChaCha8, first, last int) error {
	rows := last - first + 1
	names, keys, payloads := make([]string, 0, rows), make([]string, 0, rows), make([][]byte, 0, rows)
	for number := first; number <= last; number++ {
		key := fmt.Sprintf("00000000-0000-4000-8000-%012d", number%accounts)
		names = append(names, topics[number%len(topics)])
		keys = append(keys, key)
		payloads = append(payloads, payload(number, key, job.Bytes, source))
	}
	_, err := conn.Exec(ctx, `
		INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, key, payload, headers)
		SELECT 'account', key::uuid, 'deposited', topic, convert_to(key, 'UTF8'), payload, '{"source":"bench"}'
		FROM unnest($1::text[], $2::text[], $3::bytea[]) AS rows (topic, key, payload)`, names, keys, payloads)
	return err
}

const numberPrefix, noteSuffix = `{"number":`, `"}`

// payload is JSON with its number in front, filled with random hexadecimal
// digits: they compress to half, as identifiers and amounts in life do.
func payload(number int, key string, size int, source *rand.ChaCha8) []byte {
	text := make([]byte, 0, size+1)
	text = fmt.Appendf(text, numberPrefix+`%d,"account":%q,"note":"`, number, key)
	digits := size - len(text) - len(noteSuffix)
	random := make([]byte, (digits+1)/2)
	_, _ = source.Read(random) // never fails
	text = hex.AppendEncode(text, random)[:size-len(noteSuffix)]
	return append(text, noteSuffix...)
}

// numberOf reads the number back; 0 when it is not there.
func numberOf(value []byte, size int) int {
	if len(value) != size || string(value[:len(numberPrefix)]) != numberPrefix {
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
