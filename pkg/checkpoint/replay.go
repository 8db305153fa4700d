package checkpoint

// Replay is what was asked of a replay, and how much of it is published up to the
// edge that it stands in. It is never changed after it was made.
type Replay struct {
	ID      string `json:"id"`      // what its records carry
	Request string `json:"request"` // as it was asked for; another one is another replay
	Source  string `json:"source"`
	// Where are conditions in SQL on the rows of each table that is read; of a source
	// that is the table.
	Where map[string]string `json:"where,omitempty"`
	// Order has the column that orders the rows of a table before its primary key.
	Order map[string]string `json:"order,omitempty"`
	// From and To are commit LSNs, both included, of a source that is the WAL.
	From string `json:"from_lsn,omitempty"`
	To   string `json:"to_lsn,omitempty"`
	// Covers says in words what is.
	Covers string `json:"covers"`

	Rows uint64 `json:"rows"`
	Bad  uint64 `json:"bad_rows,omitempty"` // could become no event: their policy decided
	// Topics has the rows of each, of the first ones; the others' are under "".
	Topics map[string]uint64 `json:"topics,omitempty"`
	// Least and Greatest id of the rows, where ids are integers.
	Least    *int64 `json:"least_id,omitempty"`
	Greatest *int64 `json:"greatest_id,omitempty"`
	// FirstCommit and LastCommit are LSNs of transactions with rows, of a source that
	// is the WAL.
	FirstCommit string `json:"first_commit_lsn,omitempty"`
	LastCommit  string `json:"last_commit_lsn,omitempty"`
	Done        bool   `json:"done,omitempty"`
}
