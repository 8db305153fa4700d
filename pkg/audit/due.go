package audit

// dueness says of a row, by the xid that wrote it, whether it has to be in the
// topics. The table does not know commit LSNs, so there are two ways to tell:
//
//   - the checkpoint covers the WAL up to where it ended when the table was read:
//     then every row that was read is due;
//   - else the slot's catalog_xmin: every transaction with a smaller xid had
//     ended before an LSN that was confirmed, and what is confirmed is covered.
//
// https://github.com/postgres/postgres/blob/master/src/backend/replication/logical/snapbuild.c
// (SnapBuildProcessRunningXacts: the oldest xid still running at a running-xacts
// record becomes the slot's catalog_xmin when that record's LSN is confirmed.)
type dueness struct {
	all   bool
	below uint32 // xids before this one are due; 0: unknown
	next  uint32 // first xid not given out when the table was read
}

// firstNormalXID: below are those of initdb and of frozen rows of old.
const firstNormalXID = 3

func (d *dueness) due(xid uint32) bool {
	switch {
	case d.all || xid < firstNormalXID:
		return true
	case int32(xid-d.next) >= 0:
		return true // not of the future, so more than two thousand million xids old
	}
	return d.below != 0 && int32(xid-d.below) < 0
}
