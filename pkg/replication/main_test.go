package replication

import (
	"os"
	"testing"

	"github.com/walstream/walstream/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m).Run()) }
