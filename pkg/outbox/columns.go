package outbox

// TableColumns are the columns that order and name the rows of a table; empty
// where the table has none.
type TableColumns struct {
	ID        string // names a row in messages
	EventID   string // walstream-event-id; without it that is the position
	Timestamp string // of the record, where it is not the commit time
}

// ColumnsOf a table as Resolve saw it.
func (m *Mapping) ColumnsOf(schema, name string) TableColumns {
	t := m.find(schema, name)
	if t == nil {
		return TableColumns{}
	}
	column := func(p part) string {
		if at := t.single[p]; at >= 0 && t.columns[at].present {
			return t.columns[at].name
		}
		return ""
	}
	return TableColumns{ID: column(partRowID), EventID: column(partEventID), Timestamp: column(partTimestamp)}
}
