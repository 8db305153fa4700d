package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/replication"
)

const (
	// pageRows and pageBytes bound a page: what is begun anew after a crash, and what
	// one Kafka transaction takes in at least.
	pageRows  = 256
	pageBytes = 256 << 10
	// queryRows are asked of the server at a time.
	queryRows = 8192
	// batchCount bounds the pages that are read and not yet taken.
	batchCount = 4
)

// Options of a snapshot.
type Options struct {
	Tables []Wanted
	// Page is where it goes on.
	Page checkpoint.Page
	// Binary format for the values, but for the key's.
	Binary bool
	// Limits of the pipeline's window, of which a page is a small part.
	Limits checkpoint.Limits
}

// ErrNoRoom: the pages have come to the LSN where the stream begins. Of a recovery, the
// next Open numbers them from below.
var ErrNoRoom = errors.New("the snapshot has more pages than there are LSNs before its slot")

// Filter of a recovery. It is asked by the goroutine that reads.
type Filter interface {
	// Where is a condition in SQL on the rows of a table; empty: all are read.
	Where(t *Table) string
	// Leaves tells whether a row is left out. It is asked of each that is read;
	// carried: the stream has it, so it is left out anyway.
	Leaves(table int, carried bool, formats []byte, values [][]byte) (bool, error)
	// Counted is what has become of the rows so far.
	Counted() *checkpoint.Recovery
}

// Source reads the tables and delivers their rows as frames of a stream.
type Source struct {
	options Options
	conn    *pgx.Conn
	tables  []Table
	until   pglogrepl.LSN
	keys    *Keys
	filter  Filter // may be nil

	batches chan *decode.Batch
	free    chan *decode.Batch
	stop    context.CancelFunc
	done    chan struct{}
	err     error // valid once batches is closed

	mu    sync.Mutex
	pages map[pglogrepl.LSN]*checkpoint.Page // written and not yet asked for
	asked time.Time                          // since when the server has been asked for rows and has not answered; zero: it has

	// The reading goroutine's own.
	writer  writer
	last    checkpoint.Page // the page before
	rows    int             // of the page being written
	key     [][]byte        // of the row read last; nil: none was
	formats []byte
}

// Open begins a transaction that sees one state of the tables, and finds out how
// they are read. The connection is the source's until Close.
func Open(ctx context.Context, conn *pgx.Conn, o Options) (*Source, error) {
	s := &Source{
		options: o, conn: conn, last: o.Page, pages: map[pglogrepl.LSN]*checkpoint.Page{},
		batches: make(chan *decode.Batch, batchCount), free: make(chan *decode.Batch, batchCount),
	}
	for range batchCount {
		s.free <- new(decode.Batch)
	}
	if r := o.Page.Recovery; r != nil && s.pageCommit(o.Page.Number+1)+1 >= s.End() {
		below := *r
		below.Base = 0
		s.options.Page.Recovery, s.last.Recovery = &below, &below
	}
	if err := replication.BeginReading(ctx, conn); err != nil {
		return nil, fmt.Errorf("begin the snapshot: %w", err)
	}
	// The query's snapshot, which is the transaction's, is older than what it returns.
	var err error
	if s.until, err = replication.Inserted(ctx, conn); err != nil {
		return nil, fmt.Errorf("begin the snapshot: %w", err)
	}
	if s.tables, err = tables(ctx, conn, o.Tables); err != nil {
		return nil, err
	}
	if o.Page.Table != "" && s.place() < 0 {
		return nil, &TableError{
			o.Page.Table, "the snapshot under way has come to this table, which is no longer an outbox of the configuration",
			"name it again, or begin anew with another --pipeline and --slot",
		}
	}
	return s, nil
}

// place of the table that the snapshot has come to; -1: it is not there.
func (s *Source) place() int {
	return slices.IndexFunc(s.tables, func(t Table) bool { return t.String() == s.options.Page.Table })
}

// Until is the LSN beyond which the stream has nothing that could be in the table
// as it is read.
func (s *Source) Until() pglogrepl.LSN { return s.until }

// Tables that are read, in their order.
func (s *Source) Tables() []Table { return s.tables }

// Estimate is how many rows the tables hold; -1: unknown.
func (s *Source) Estimate() (rows int64) {
	for _, t := range s.tables {
		if t.Estimate < 0 {
			return -1
		}
		rows += t.Estimate
	}
	return rows
}

// End is the commit LSN of the last transaction, which ends where the stream begins.
func (s *Source) End() pglogrepl.LSN { return s.options.Page.From - 1 }

// Start as an edge: what is published already.
func (s *Source) Start() checkpoint.Edge {
	page := s.options.Page
	return checkpoint.Edge{Covered: s.pageCommit(page.Number) + 1, Page: &page}
}

// pageCommit is the commit LSN of a page; it ends one further.
func (s *Source) pageCommit(number uint32) pglogrepl.LSN {
	commit := 2 * pglogrepl.LSN(number)
	if r := s.options.Page.Recovery; r != nil {
		commit += r.Base
	}
	return commit
}

// Leave sets who leaves out rows beside those that the stream carries, before Run.
func (s *Source) Leave(filter Filter) { s.filter = filter }

// Run begins to read. keys are the rows to leave out.
func (s *Source) Run(ctx context.Context, keys *Keys) {
	ctx, s.stop = context.WithCancel(ctx)
	s.keys, s.done = keys, make(chan struct{})
	go func() {
		defer close(s.done)
		defer close(s.batches)
		s.err = s.read(ctx)
	}()
}

// Batches delivers what was read, in order. It is closed behind the last page, or
// at an error.
func (s *Source) Batches() <-chan *decode.Batch { return s.batches }

// Release gives a batch back.
func (s *Source) Release(b *decode.Batch) {
	if cap(b.Buffer) > 8*pageBytes { // one huge row should not hold memory for ever
		b.Buffer = nil
	}
	b.Reset()
	s.free <- b
}

// Err is why the reading ended; nil behind the last page.
func (s *Source) Err() error { return s.err }

// Page is what the transaction of that commit LSN stands for, nil for the last one.
// It may be asked once.
func (s *Source) Page(commit pglogrepl.LSN) *checkpoint.Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := s.pages[commit]
	delete(s.pages, commit)
	return page
}

// Waiting is since when the server has been asked for rows and has not answered;
// zero when it has.
func (s *Source) Waiting() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *Source) waits(since time.Time) {
	s.mu.Lock()
	s.asked = since
	s.mu.Unlock()
}

// Close ends the reading and waits for it.
func (s *Source) Close() {
	if s.done != nil {
		s.stop()
		<-s.done
	}
}

// read all tables from where the snapshot goes on, then the end.
func (s *Source) read(ctx context.Context) error {
	first := max(s.place(), 0)
	for n := first; n < len(s.tables); n++ {
		var after []string
		if n == first {
			after = s.options.Page.After
		}
		if err := s.readTable(ctx, n, after); err != nil {
			return err
		}
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	s.writer.begin(s.End(), time.Now())
	s.writer.commit(s.End(), s.options.Page.From, time.Now())
	return s.send(ctx)
}

func (s *Source) readTable(ctx context.Context, n int, after []string) error {
	t := &s.tables[n]
	s.key = nil
	for _, part := range after {
		s.key = append(s.key, []byte(part))
	}
	formats := s.resultFormats(t)
	described := false
	for {
		read, err := s.readQuery(ctx, n, formats, &described)
		if err != nil {
			return fmt.Errorf("snapshot of %s: read behind key (%s): %w", t, strings.Join(s.keyText(), ", "), replication.Classify(err))
		}
		if read < queryRows {
			return s.endPage(ctx, t)
		}
	}
}

// resultFormats: text for the key, which is written down and compared.
func (s *Source) resultFormats(t *Table) []int16 {
	formats := make([]int16, len(t.Relation.Columns))
	s.formats = slices.Repeat([]byte{decode.ValueText}, len(formats))
	if !s.options.Binary {
		return formats
	}
	key := t.keyColumns()
	for i := range formats {
		if !slices.Contains(key, i) {
			formats[i], s.formats[i] = pgx.BinaryFormatCode, decode.ValueBinary
		}
	}
	return formats
}

// readQuery reads up to queryRows rows behind s.key.
func (s *Source) readQuery(ctx context.Context, n int, formats []int16, described *bool) (read int, err error) {
	t, columns := &s.tables[n], s.tables[n].keyColumns()
	params := make([][]byte, len(s.key))
	for i, part := range s.key {
		params[i] = slices.Clone(part)
	}
	s.waits(time.Now())
	defer s.waits(time.Time{})
	result := s.conn.PgConn().ExecParams(ctx, t.query(s.where(t), s.key != nil, queryRows), params, nil, nil, formats)
	key := make([][]byte, len(columns))
	for result.NextRow() {
		s.waits(time.Time{})
		values := result.Values()
		for i, c := range columns {
			key[i] = values[c]
		}
		if err := s.row(ctx, n, key, values, described); err != nil {
			_ = s.conn.PgConn().Conn().Close() // to read the rest would take as long as its rows do
			_, _ = result.Close()
			return read, err
		}
		read++
	}
	_, err = result.Close()
	return read, err
}

// where is the condition on the rows of a table.
func (s *Source) where(t *Table) string {
	where := s.options.Page.Where
	if s.filter == nil {
		return where
	}
	doubt := s.filter.Where(t)
	if where != "" && doubt != "" {
		return "(" + where + "\n) AND (" + doubt + ")"
	}
	return where + doubt
}

// row goes into the page, unless the stream will carry it, or it is left out.
func (s *Source) row(ctx context.Context, n int, key, values [][]byte, described *bool) error {
	t := &s.tables[n]
	carried, err := s.keys.Has(n, key)
	if err != nil {
		return err
	}
	if s.filter != nil {
		leaves, err := s.filter.Leaves(n, carried, s.formats, values)
		if err != nil {
			return err
		}
		carried = carried || leaves
	}
	if !carried {
		if s.rows == 0 {
			if err := s.beginPage(ctx, t, described); err != nil {
				return err
			}
		}
		s.writer.insert(s.pageCommit(s.last.Number+1), time.Now(), t.Relation.ID, s.formats, values)
		s.rows++
	}
	s.remember(key)
	if s.rows >= max(1, min(pageRows, s.options.Limits.Events/8)) ||
		s.rows > 0 && len(s.writer.batch.Buffer) >= min(pageBytes, s.options.Limits.Bytes/8) {
		return s.endPage(ctx, t)
	}
	return nil
}

func (s *Source) remember(key [][]byte) {
	if s.key == nil {
		s.key = make([][]byte, len(key))
	}
	for i := range key {
		s.key[i] = append(s.key[i][:0], key[i]...)
	}
}

func (s *Source) keyText() (text []string) {
	for _, part := range s.key {
		text = append(text, string(part))
	}
	return text
}

// open takes an empty batch.
func (s *Source) open(ctx context.Context) error {
	select {
	case s.writer.batch = <-s.free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Source) beginPage(ctx context.Context, t *Table, described *bool) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	now, lsn := time.Now(), s.pageCommit(s.last.Number+1)
	if lsn+1 >= s.End() {
		return ErrNoRoom
	}
	s.writer.begin(lsn, now)
	if !*described {
		s.writer.relation(t.Relation, now)
		*described = true
	}
	return nil
}

// endPage sends the page being written, if there is one.
func (s *Source) endPage(ctx context.Context, t *Table) error {
	if s.rows == 0 {
		return nil
	}
	s.last = checkpoint.Page{
		From: s.last.From, Where: s.last.Where, Number: s.last.Number + 1, Table: t.String(), After: s.keyText(),
		Rows: s.last.Rows + uint64(s.rows),
	}
	if s.filter != nil {
		s.last.Recovery = s.filter.Counted()
	}
	s.rows = 0
	page := s.last
	lsn := s.pageCommit(page.Number)
	s.mu.Lock()
	s.pages[lsn] = &page
	s.mu.Unlock()
	s.writer.commit(lsn, lsn+1, time.Now())
	return s.send(ctx)
}

func (s *Source) send(ctx context.Context) error {
	select {
	case s.batches <- s.writer.finish(): // has room for all batches there are
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
