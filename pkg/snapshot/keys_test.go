package snapshot

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Keys agrees with a map, in memory and in files.
func TestKeys(t *testing.T) {
	for _, limit := range []int{keysInMemory, 1000, 700, 1} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			seed := rand.Uint64()
			rnd := rand.New(rand.NewPCG(seed, 0))
			k := NewKeys()
			defer k.Close()
			k.limit = limit
			want := map[string]bool{}
			n := min(5000, 60*limit) // a file each, with a limit of 1
			for range n {
				table, key := rnd.IntN(2), fmt.Sprint(rnd.IntN(3*n))
				want[fmt.Sprint(table, key)] = true
				if err := k.Add(table, [][]byte{[]byte(key), []byte("x")}); err != nil {
					t.Fatal(err)
				}
			}
			k.Seal()
			if k.Len() != n {
				t.Errorf("seed %d: %d keys, want %d", seed, k.Len(), n)
			}
			for table := range 2 {
				for i := range 3 * n {
					key := fmt.Sprint(i)
					has, err := k.Has(table, [][]byte{[]byte(key), []byte("x")})
					if err != nil || has != want[fmt.Sprint(table, key)] {
						t.Fatalf("seed %d: key %s of table %d: %t, error %v", seed, key, table, has, err)
					}
				}
			}
		})
	}
}

// Composite keys are told apart by their parts, and tables too.
func TestKeysApart(t *testing.T) {
	k := NewKeys()
	defer k.Close()
	if err := k.Add(0, [][]byte{[]byte("a"), []byte("bc")}); err != nil {
		t.Fatal(err)
	}
	k.Seal()
	for _, other := range [][][]byte{{[]byte("ab"), []byte("c")}, {[]byte("abc")}, {[]byte("a"), []byte("bc"), nil}, nil} {
		if has, _ := k.Has(0, other); has {
			t.Errorf("%q is taken for another key", other)
		}
	}
	if has, _ := k.Has(1, [][]byte{[]byte("a"), []byte("bc")}); has {
		t.Error("a key of one table is taken for one of another")
	}
}
