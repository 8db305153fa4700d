package checkpoint

// Report is what a sink has to tell the loop: answers to rows, the newest edge a
// durable checkpoint covers, and the failure that ended it.
type Report struct {
	Acked   []Ticket
	Durable Edge // zero when nothing new became durable
	Err     error
}

// Reset empties the report and keeps its memory.
func (r *Report) Reset() { r.Acked, r.Durable, r.Err = r.Acked[:0], Edge{}, nil }
