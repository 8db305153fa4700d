package outbox

import "errors"

// Transform changes events by code, for people who embed the packages: what
// settings cannot say. It is called for every event of its table, by one
// goroutine, after all settings were applied.
//
// It may change Topic, Key, Value, Headers, Partition and Timestamp. The bytes it
// finds alias the row and the Mapping's buffers until the next event: what it
// puts in their place it must have allocated, or own until its next call. The
// headers it sees are those of the row; walstream's own stand before them and
// stay. An error makes a bad row: it names the reason, never a payload.
//
// It must be a function of the event alone. An event is mapped anew after every
// restart, and again by an audit: two answers for one row would be told as rows
// lost and altered.
type Transform interface {
	Transform(e *Event) error
}

// TransformFunc is a Transform that is a function.
type TransformFunc func(e *Event) error

// Transform calls f.
func (f TransformFunc) Transform(e *Event) error { return f(e) }

var errTransform = errors.New("the transform refused it")

// ownHeaders is how many headers of walstream's own an event begins with.
const ownHeaders = 3

// transform runs the table's Transform on a view of the event without what is
// not its own.
func (r *rowMapper) transform(e *Event) error {
	position, id, all := e.Position, e.RowID, e.Headers
	e.Headers = all[ownHeaders:]
	err := r.plan.table.transform.Transform(e)
	e.Position, e.RowID, e.Headers = position, id, append(all[:ownHeaders], e.Headers...)
	if err == nil {
		return nil
	}
	return &RowError{
		Table: r.plan.table.String(), RowID: r.id, Position: r.row.Position,
		ValueLength: len(e.Value), Reason: errTransform.Error() + ": " + err.Error(),
	}
}
