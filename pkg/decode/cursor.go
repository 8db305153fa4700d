package decode

import (
	"bytes"
	"encoding/binary"
)

// cursor reads big-endian values off a byte slice. A read past the end returns
// zero and sets bad, which the caller checks once a message.
type cursor struct {
	data []byte
	pos  int
	bad  bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.data)-c.pos {
		c.bad = true
		return nil
	}
	b := c.data[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return b
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// string reads a zero-terminated string.
func (c *cursor) string() string {
	if c.bad {
		return ""
	}
	end := bytes.IndexByte(c.data[c.pos:], 0)
	if end < 0 {
		c.bad = true
		return ""
	}
	s := string(c.data[c.pos : c.pos+end])
	c.pos += end + 1
	return s
}

func (c *cursor) rest() int { return len(c.data) - c.pos }
