package outbox

import (
	"crypto/sha256"
	"encoding/hex"
)

// HeaderIdempotency is the header of the idempotency key, unless a setting
// names another.
const HeaderIdempotency = "idempotency-key"

// IdempotencyKeyOf an event: the sha256, in hex, of its event id, topic and key
// with a | between them. An application that fills the column itself computes it
// so, or in SQL:
//
//	encode(sha256(convert_to(event_id || '|' || topic || '|' || coalesce(key, ''), 'UTF8')), 'hex')
func IdempotencyKeyOf(eventID, topic string, key []byte) string {
	return string(appendIdempotencyKey(nil, []byte(eventID), topic, key))
}

// appendIdempotencyKey writes the key to dst, where it first puts together what
// is hashed.
func appendIdempotencyKey(dst, eventID []byte, topic string, key []byte) []byte {
	start := len(dst)
	dst = append(dst, eventID...)
	dst = append(dst, '|')
	dst = append(dst, topic...)
	dst = append(dst, '|')
	dst = append(dst, key...)
	sum := sha256.Sum256(dst[start:])
	return hex.AppendEncode(dst[:start], sum[:])
}
