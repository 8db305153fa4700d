package outbox

// salvage fills e with what can be had of a row that cannot become a record, for
// whoever keeps it aside: each part as it was to be, where that part is sound. Of a
// value that is not, the column's bytes stand. The topic stays empty unless it is
// known.
func (r *rowMapper) salvage(e *Event) {
	t, values, columns := r.plan.table, r.row.Values, r.row.Relation.Columns
	if e.Topic == "" && r.fillTopic(e) != nil {
		e.Topic = ""
	}
	if r.fillKey(e) != nil {
		e.Key = nil
	}
	if r.fillValue(e) != nil {
		e.Value = nil
		if at := r.plan.column(t.single[partValue]); at >= 0 {
			var err error
			if e.Value, err = r.value(at); err != nil {
				e.Value = values[at].Data // as PostgreSQL sent it
			}
		}
	}
	e.Partition, e.Timestamp = -1, r.row.Begin.CommitTime
	if c := r.plan.column(t.single[partPartition]); c >= 0 && !values[c].Null() {
		if n, err := partitionOf(values[c], columns[c].TypeOID); err == nil {
			e.Partition = n
		}
	}
	if c := r.plan.column(t.single[partTimestamp]); c >= 0 && !values[c].Null() {
		if at, err := timestampOf(values[c], columns[c].TypeOID); err == nil {
			e.Timestamp = at
		}
	}
	if t.framing != nil && e.Value != nil {
		e.Schema = &t.framing.schema // it has no prefix, and should have
	}
	e.Headers = e.Headers[:0]
	if r.fillHeaders(e) != nil {
		r.salvageHeaders(e)
	}
}

// salvageHeaders keeps walstream's own, and the row's that can be read.
func (r *rowMapper) salvageHeaders(e *Event) {
	t := r.plan.table
	start := len(r.scratch)
	r.scratch = r.row.Position.AppendHeader(r.scratch, r.timeline)
	position := since(r.scratch, start)
	id, err := r.part(partEventID)
	if err != nil || id == nil {
		id = position
	}
	e.Headers = append(e.Headers[:0], Header{HeaderPosition, position}, Header{HeaderEventID, id}, Header{HeaderPipeline, t.pipeline})
	for i := range t.headers {
		if at := r.plan.column(t.headers[i].at); at >= 0 {
			if value, err := r.value(at); err == nil {
				e.Headers = append(e.Headers, Header{t.headers[i].name, value})
			}
		}
	}
	e.Headers = append(e.Headers, t.constants...)
}
