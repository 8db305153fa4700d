package sink

import (
	"context"
	"net"
)

// guarded lays a check over the connections of a claim: nothing is written to
// Kafka while it returns an error. An instance that was paused past the time for
// which the slot is surely its own wakes up with requests half made; without the
// check they would go out, and fence or repeat what its successor does. (What was
// written before the pause arrives all the same: for that there is fencing.)
func guarded(dial dialFunc, check func() error) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return guardedConn{conn, check}, nil
	}
}

type guardedConn struct {
	net.Conn
	check func() error
}

func (c guardedConn) Write(b []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, &net.OpError{Op: "write", Net: "tcp", Addr: c.RemoteAddr(), Err: err}
	}
	return c.Conn.Write(b)
}
