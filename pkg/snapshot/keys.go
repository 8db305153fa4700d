package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	// keysInMemory is when the keys go to a file: 16 MiB of them.
	keysInMemory = 1 << 20
	// indexEvery so many keys of a file one is kept in memory.
	indexEvery = 256
)

// digest stands for a key: 16 bytes of its SHA-256. Two of a thousand million keys
// are alike once in 10^20 times.
type digest [16]byte

func compareDigests(a, b digest) int { return bytes.Compare(a[:], b[:]) }

// Keys is a set of primary keys, of which a bounded number is in memory. Add, then
// Seal, then Has.
type Keys struct {
	limit int
	fresh []digest // sorted once sealed
	runs  []run
	text  []byte
}

// run is a file of sorted digests.
type run struct {
	file  *os.File
	count int
	index []digest // every indexEvery-th
}

// NewKeys returns an empty set. Close it.
func NewKeys() *Keys { return &Keys{limit: keysInMemory} }

func (k *Keys) digest(table int, key [][]byte) digest {
	k.text = binary.AppendUvarint(k.text[:0], uint64(table))
	for _, part := range key {
		k.text = append(binary.AppendUvarint(k.text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(k.text)
	return digest(sum[:16])
}

// Add a key of a table, as text.
func (k *Keys) Add(table int, key [][]byte) error {
	k.fresh = append(k.fresh, k.digest(table, key))
	if len(k.fresh) < k.limit {
		return nil
	}
	slices.SortFunc(k.fresh, compareDigests)
	r, err := writeRun(k.fresh)
	if err != nil {
		return fmt.Errorf("keep the keys that the stream will carry in a temporary file (TMPDIR is %s): %w", os.TempDir(), err)
	}
	k.runs, k.fresh = append(k.runs, r), k.fresh[:0]
	return nil
}

func writeRun(sorted []digest) (run, error) {
	file, err := os.CreateTemp("", "walstream-snapshot-")
	if err != nil {
		return run{}, err
	}
	_ = os.Remove(file.Name()) // it lives as long as it is open; where that fails, it stays behind
	r := run{file: file, count: len(sorted)}
	data := make([]byte, 0, len(sorted)*len(digest{}))
	for i := range sorted {
		if i%indexEvery == 0 {
			r.index = append(r.index, sorted[i])
		}
		data = append(data, sorted[i][:]...)
	}
	if _, err := file.Write(data); err != nil {
		return run{}, errors.Join(err, file.Close())
	}
	return r, nil
}

// Seal ends the adding.
func (k *Keys) Seal() { slices.SortFunc(k.fresh, compareDigests) }

// Len is how many keys were added.
func (k *Keys) Len() int {
	n := len(k.fresh)
	for i := range k.runs {
		n += k.runs[i].count
	}
	return n
}

// Has reports whether the key was added.
func (k *Keys) Has(table int, key [][]byte) (bool, error) {
	if len(k.fresh) == 0 && len(k.runs) == 0 {
		return false, nil
	}
	d := k.digest(table, key)
	if _, found := slices.BinarySearchFunc(k.fresh, d, compareDigests); found {
		return true, nil
	}
	for i := range k.runs {
		if found, err := k.runs[i].has(d); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func (r *run) has(d digest) (bool, error) {
	block, found := slices.BinarySearchFunc(r.index, d, compareDigests)
	if found || block == 0 {
		return found, nil
	}
	var data [indexEvery * len(digest{})]byte
	n, err := r.file.ReadAt(data[:], int64(block-1)*int64(len(data)))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the keys that the stream will carry: %w", err)
	}
	for at := 0; at+len(d) <= n; at += len(d) {
		if bytes.Equal(data[at:at+len(d)], d[:]) {
			return true, nil
		}
	}
	return false, nil
}

// Close gives the files up.
func (k *Keys) Close() {
	for i := range k.runs {
		_ = k.runs[i].file.Close() // nothing was promised of it
	}
	k.runs, k.fresh = nil, nil
}
