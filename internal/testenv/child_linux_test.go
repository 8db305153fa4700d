package testenv

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// After kill -9 of a program its server ends, and the next one to start removes
// its data.
func TestPostgresEndsWithItsParent(t *testing.T) {
	t.Setenv(EnvFrom, Native)
	NewPostgres(t, PGOptions{}) // or skip
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TESTENV_ORPHAN=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var pid int
	var data string
	if _, err := fmt.Sscan(line, &pid, &data); err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("the program did not start its server: %q", line)
	}
	family := append(childrenOf(pid), pid)
	if len(family) < 4 {
		t.Errorf("only %d processes found: the test would prove nothing", len(family))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the server's processes end", func() bool {
		for _, member := range family {
			if state, _ := stateOf(member); state != "" && state != "Z" {
				return false
			}
		}
		return true
	})
	temp, err := newTempDir(t.Context(), "sweeper", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer temp.remove()
	if exists(data) {
		t.Errorf("%s was left behind", data)
	}
}
