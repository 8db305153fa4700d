package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// cutter takes the next piece off a connection: what is passed on at once, and
// what it is called, if anything. The piece lives until the next call.
type cutter func(r *bufio.Reader) (piece []byte, what string, err error)

// wire gives the cutters of one connection: of what the client says, and of what
// it is answered.
type wire func() (requests, answers cutter)

// Names of the pieces that a fault can wait for.
const (
	produce            = "Produce"
	addPartitionsToTxn = "AddPartitionsToTxn"
	endTxn             = "EndTxn"
	initProducerID     = "InitProducerId"
	// confirmation is a standby status update that confirms more than the one
	// before.
	confirmation = "confirmation"
)

// apiNames by Kafka's API keys.
var apiNames = map[int16]string{0: produce, 22: initProducerID, 24: addPartitionsToTxn, 26: endTxn}

// maxPiece is more than any request or message of these protocols here.
const maxPiece = 256 << 20

// kafkaWire cuts Kafka's requests and answers: a length, then, in a request, its
// API key, version and correlation id, in an answer the correlation id.
func kafkaWire() (requests, answers cutter) {
	var mu sync.Mutex
	asked := map[int32]string{}
	var request, answer []byte
	requests = func(r *bufio.Reader) ([]byte, string, error) {
		piece, err := sized(r, &request, 0, 4, 12)
		if err != nil {
			return nil, "", err
		}
		what := apiNames[int16(binary.BigEndian.Uint16(piece[4:]))]
		mu.Lock()
		asked[int32(binary.BigEndian.Uint32(piece[8:]))] = what
		mu.Unlock()
		return piece, what, nil
	}
	answers = func(r *bufio.Reader) ([]byte, string, error) {
		piece, err := sized(r, &answer, 0, 4, 8)
		if err != nil {
			return nil, "", err
		}
		id := int32(binary.BigEndian.Uint32(piece[4:]))
		mu.Lock()
		what := asked[id]
		delete(asked, id)
		mu.Unlock()
		return piece, what, nil
	}
	return requests, answers
}

// Codes of the packets that come before the one that starts a session.
const (
	sslRequest    = 80877103
	gssencRequest = 80877104
)

// postgresWire cuts what a client of PostgreSQL says, and takes answers as they
// come. Only the first messages have no type.
func postgresWire() (requests, answers cutter) {
	started := false
	var flushed uint64
	var request []byte
	answer := make([]byte, 64<<10)
	requests = func(r *bufio.Reader) ([]byte, string, error) {
		if !started {
			piece, err := sized(r, &request, 0, 0, 8)
			if err != nil {
				return nil, "", err
			}
			code := binary.BigEndian.Uint32(piece[4:])
			started = code != sslRequest && code != gssencRequest
			return piece, "", nil
		}
		piece, err := sized(r, &request, 1, 0, 5)
		if err != nil {
			return nil, "", err
		}
		// CopyData of 'r', written, flushed, applied, clock, reply.
		if piece[0] == 'd' && len(piece) == 39 && piece[5] == 'r' {
			if flush := binary.BigEndian.Uint64(piece[14:]); flush > flushed {
				flushed = flush
				return piece, confirmation, nil
			}
		}
		return piece, "", nil
	}
	answers = func(r *bufio.Reader) ([]byte, string, error) {
		n, err := r.Read(answer)
		return answer[:n], "", err
	}
	return requests, answers
}

// sized reads a piece that says its length behind a prefix; the length counts
// itself in PostgreSQL, not in Kafka.
func sized(r *bufio.Reader, kept *[]byte, prefix, uncounted, least int) ([]byte, error) {
	head, err := r.Peek(prefix + 4)
	if err != nil {
		return nil, err
	}
	total := prefix + uncounted + int(binary.BigEndian.Uint32(head[prefix:]))
	if total < least || total > maxPiece {
		return nil, fmt.Errorf("a piece of %d bytes", total)
	}
	if cap(*kept) < total {
		*kept = make([]byte, total)
	}
	piece := (*kept)[:total]
	_, err = io.ReadFull(r, piece)
	return piece, err
}
