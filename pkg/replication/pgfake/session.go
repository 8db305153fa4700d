package pgfake

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// session is one connection.
type session struct {
	server *Server
	conn   net.Conn
	pid    uint32
	params map[string]string // of the startup message
	since  time.Time

	// writing guards what goes out: a fatal error comes from other goroutines.
	writing sync.Mutex
	backend *pgproto3.Backend

	types     *pgtype.Map
	prepared  map[string]*statement
	portals   map[string]*portal
	failed    bool   // what follows is passed over, up to Sync
	statement string // the one at hand

	sender *walsender // guarded by the server's lock
}

// portal is a statement with its arguments.
type portal struct {
	statement *statement
	args      []any
	formats   []int16
}

func (s *Server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	c := &session{
		server: s, conn: conn, types: pgtype.NewMap(), backend: pgproto3.NewBackend(conn, conn), since: time.Now(),
		prepared: map[string]*statement{}, portals: map[string]*portal{},
	}
	if !c.startup() {
		return
	}
	defer c.leave()
	for {
		message, err := c.backend.Receive()
		if err != nil {
			return
		}
		if _, ok := message.(*pgproto3.Terminate); ok {
			return
		}
		if !c.handle(message) {
			return
		}
	}
}

// startup lets the client in, or not.
func (c *session) startup() bool {
	message, err := c.backend.ReceiveStartupMessage()
	if err != nil {
		return false
	}
	start, ok := message.(*pgproto3.StartupMessage)
	if !ok {
		return false // a request to cancel: what there is to cancel takes no time
	}
	c.params = start.Parameters
	s := c.server
	s.mu.Lock()
	if refused := s.refusal(c.params["database"]); refused != nil || s.state == down {
		s.mu.Unlock()
		if refused != nil {
			c.fatal(refused.code, refused.message)
		}
		return false
	}
	s.nextPID++
	c.pid = s.nextPID
	s.sessions[c] = struct{}{}
	s.mu.Unlock()
	c.send(
		&pgproto3.AuthenticationOk{},
		&pgproto3.ParameterStatus{Name: "server_version", Value: s.serverVersion()},
		&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"},
		&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"},
		&pgproto3.ParameterStatus{Name: "integer_datetimes", Value: "on"},
		&pgproto3.BackendKeyData{ProcessID: c.pid, SecretKey: []byte{1, 2, 3, 4}},
		&pgproto3.ReadyForQuery{TxStatus: 'I'},
	)
	return true
}

func (s *Server) refusal(database string) *failure {
	switch {
	case s.state == starting:
		return fail("57P03", "the database system is starting up")
	case s.state == stopping:
		return fail("57P03", "the database system is shutting down")
	case s.state == up && database != s.cfg.Database:
		return fail("3D000", "database %q does not exist", database)
	}
	return nil
}

// leave is the end of the session: what it held is free.
func (c *session) leave() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
	for _, slot := range s.slots {
		if slot.holder == c {
			slot.holder = nil
		}
	}
	s.tell()
}

// drop the connection without a word.
func (c *session) drop() { _ = c.conn.Close() }

// fatal ends the session with an error. It may be called by anyone.
func (c *session) fatal(code, message string) {
	c.send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: message})
	c.drop()
}

// send messages; one that does not arrive is noticed when reading.
func (c *session) send(messages ...pgproto3.BackendMessage) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for _, m := range messages {
		c.backend.Send(m)
	}
	_ = c.backend.Flush()
}

func (c *session) refuse(f *failure) {
	c.send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: f.code, Message: f.message})
}

// handle a message; false ends the session.
func (c *session) handle(message pgproto3.FrontendMessage) bool {
	if _, ok := message.(*pgproto3.Sync); ok {
		c.failed = false
		c.ready()
		return true
	}
	if c.failed {
		return true
	}
	var refused *failure
	switch m := message.(type) {
	case *pgproto3.Query:
		return c.simple(m.String)
	case *pgproto3.Parse:
		refused = c.parse(m)
	case *pgproto3.Describe:
		c.describe(m)
	case *pgproto3.Bind:
		refused = c.bind(m)
	case *pgproto3.Execute:
		refused = c.execute(c.portals[m.Portal])
	case *pgproto3.Close:
		c.send(&pgproto3.CloseComplete{})
	case *pgproto3.Flush:
	default:
		refused = fail("08P01", "pgfake: message %T", message)
	}
	if refused != nil {
		c.failed = true
		c.refuse(refused)
	}
	return true
}

func (c *session) ready() { c.send(&pgproto3.ReadyForQuery{TxStatus: 'I'}) }

// simple is a statement without arguments, or a command of a walsender.
func (c *session) simple(sql string) bool {
	if c.params["replication"] == "database" {
		if handled, goOn := c.command(sql); handled {
			return goOn
		}
	}
	statement, refused := c.server.statement(sql)
	if refused == nil {
		refused = c.run(&portal{statement: statement}, true)
	}
	if refused != nil {
		c.refuse(refused)
	}
	c.ready()
	return true
}

// timeout is wal_sender_timeout of this session.
func (c *session) timeout() time.Duration {
	if own, err := strconv.Atoi(c.params["wal_sender_timeout"]); err == nil {
		return time.Duration(own) * time.Millisecond
	}
	return c.server.cfg.WALSenderTimeout
}

// showMilliseconds prints a time the way SHOW does.
func showMilliseconds(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"min", time.Minute}, {"s", time.Second}} {
		if d >= unit.size && d%unit.size == 0 {
			return fmt.Sprint(int(d/unit.size), unit.name)
		}
	}
	return fmt.Sprint(d.Milliseconds(), "ms")
}

func (c *session) parse(m *pgproto3.Parse) *failure {
	statement, refused := c.server.statement(m.Query)
	if refused != nil {
		return refused
	}
	c.prepared[m.Name] = statement
	c.send(&pgproto3.ParseComplete{})
	return nil
}

func (c *session) describe(m *pgproto3.Describe) {
	if m.ObjectType == 'S' {
		statement := c.prepared[m.Name]
		c.send(&pgproto3.ParameterDescription{ParameterOIDs: statement.params})
		c.send(rowDescription(statement.columns, nil))
		return
	}
	p := c.portals[m.Name]
	c.send(rowDescription(p.statement.columns, p.formats))
}

func rowDescription(columns []column, formats []int16) pgproto3.BackendMessage {
	if len(columns) == 0 {
		return &pgproto3.NoData{}
	}
	description := &pgproto3.RowDescription{}
	for i, c := range columns {
		description.Fields = append(description.Fields, pgproto3.FieldDescription{
			Name: []byte(c.name), DataTypeOID: c.oid, DataTypeSize: -1, TypeModifier: -1, Format: formatOf(formats, i),
		})
	}
	return description
}

// formatOf the ith value: none given is text, one is for all.
func formatOf(formats []int16, i int) int16 {
	switch len(formats) {
	case 0:
		return pgtype.TextFormatCode
	case 1:
		return formats[0]
	}
	return formats[i]
}

func (c *session) bind(m *pgproto3.Bind) *failure {
	statement := c.prepared[m.PreparedStatement]
	if len(m.Parameters) != len(statement.params) {
		return fail("08P01", "pgfake: %d parameters, not %d", len(m.Parameters), len(statement.params))
	}
	p := &portal{statement: statement, formats: m.ResultFormatCodes}
	for i, data := range m.Parameters {
		codec, _ := c.types.TypeForOID(statement.params[i])
		value, err := codec.Codec.DecodeValue(c.types, statement.params[i], formatOf(m.ParameterFormatCodes, i), data)
		if err != nil {
			return fail("22P03", "pgfake: parameter %d: %v", i+1, err)
		}
		p.args = append(p.args, value)
	}
	c.portals[m.DestinationPortal] = p
	c.send(&pgproto3.BindComplete{})
	return nil
}

func (c *session) execute(p *portal) *failure { return c.run(p, false) }

func (c *session) run(p *portal, describe bool) *failure {
	c.statement = p.statement.sql
	c.server.mu.Lock()
	rows, refused := p.statement.answer(c, p.args)
	lost := c.server.losesAnswer(c.statement)
	c.server.mu.Unlock()
	if lost {
		c.drop()
		return nil
	}
	if refused != nil {
		return refused
	}
	tag, _, _ := strings.Cut(strings.TrimSpace(p.statement.sql), " ")
	c.rows(tag, p.statement.columns, p.formats, rows, describe)
	return nil
}

// rows of an answer, and its end.
func (c *session) rows(tag string, columns []column, formats []int16, rows [][]any, describe bool) {
	var messages []pgproto3.BackendMessage
	if describe && len(columns) > 0 {
		messages = append(messages, rowDescription(columns, formats))
	}
	for _, row := range rows {
		data := &pgproto3.DataRow{}
		for i, v := range row {
			if v == nil {
				data.Values = append(data.Values, nil)
				continue
			}
			text, err := c.types.Encode(columns[i].oid, formatOf(formats, i), v, []byte{}) // nil is NULL
			if err != nil {
				panic(fmt.Sprintf("pgfake: column %s: %v", columns[i].name, err))
			}
			data.Values = append(data.Values, text)
		}
		messages = append(messages, data)
	}
	if tag == "SELECT" {
		tag = fmt.Sprintf("SELECT %d", len(rows))
	}
	c.send(append(messages, &pgproto3.CommandComplete{CommandTag: []byte(tag)})...)
}
