package verdict

import "fmt"

// Numbers checks that each of 1..n arrived exactly once: the verdict of a drain
// whose rows carry their number. Its memory is one bit per number.
type Numbers struct {
	seen      []uint64
	n         int
	Arrived   int // different numbers
	Duplicate int
	Foreign   int // not of 1..n
}

// NewNumbers expects 1..n.
func NewNumbers(n int) *Numbers { return &Numbers{seen: make([]uint64, n/64+1), n: n} }

// Take notes one arrival.
func (v *Numbers) Take(number int) {
	if number < 1 || number > v.n {
		v.Foreign++
		return
	}
	word, bit := number/64, uint64(1)<<(number%64)
	if v.seen[word]&bit != 0 {
		v.Duplicate++
		return
	}
	v.seen[word] |= bit
	v.Arrived++
}

// Err says what is wrong; nil when each arrived once.
func (v *Numbers) Err() error {
	if v.Arrived == v.n && v.Duplicate == 0 && v.Foreign == 0 {
		return nil
	}
	missing := ""
	for number := 1; number <= v.n; number++ {
		if v.seen[number/64]&(1<<(number%64)) == 0 {
			missing = fmt.Sprintf(", the first missing is %d", number)
			break
		}
	}
	return fmt.Errorf("%d of %d rows arrived (%d duplicates, %d foreign)%s", v.Arrived, v.n, v.Duplicate, v.Foreign, missing)
}
