// Package replication is walstream's side of PostgreSQL: the only place where
// connections are opened.
//
//	Conn     the replication connection: START_REPLICATION, status updates, the
//	         orderly end of the stream
//	Reader   its read half: one goroutine that turns the socket into batches
//	Session  the ordinary connection beside it: hears of a shutdown at once,
//	         reads the slot's health
//
// Ownership: the socket is read by the reader goroutine only, without deadlines,
// and written by the loop only. Batches are recycled; when none is free the
// reader stops reading and TCP pushes back on the walsender.
//
// What surprised us: a server's fast shutdown waits until a connected
// walsender's client has read and confirmed everything, while an ordinary
// session is told within milliseconds; START_REPLICATION from an LSN the slot
// has passed is moved forward in silence; a session that matches
// synchronous_standby_names holds up every COMMIT of the application.
package replication
