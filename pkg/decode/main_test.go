package decode_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/walstream/walstream/internal/testenv"
)

// update rewrites the goldens from the servers of internal/testenv.
var update = flag.Bool("update", false, "capture the goldens anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }
