package replication

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/walstream/walstream/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }
