package decode

// Batch is a run of CopyData payloads in one buffer, handed from the reader to
// the loop and back. The payloads alias the buffer and live until the batch is
// given back.
type Batch struct {
	Payloads [][]byte
	Buffer   []byte
	next     int
}

// Next returns the next payload; ok is false at the end of the batch.
func (b *Batch) Next() (payload []byte, ok bool) {
	if b.next >= len(b.Payloads) {
		return nil, false
	}
	payload = b.Payloads[b.next]
	b.next++
	return payload, true
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.Payloads, b.Buffer, b.next = b.Payloads[:0], b.Buffer[:0], 0 }
