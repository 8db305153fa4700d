package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// identity is the user a server runs as when this process may not be it.
type identity struct{ uid, gid uint32 }

// unprivileged returns nobody for root, whom PostgreSQL refuses, else nil: the
// user we are.
func unprivileged() *identity {
	if os.Geteuid() != 0 {
		return nil
	}
	return &identity{uid: 65534, gid: 65534}
}

// own gives a path to the identity; nil owns what it makes.
func (i *identity) own(path string) error {
	if i == nil {
		return nil
	}
	return os.Lchown(path, int(i.uid), int(i.gid))
}

// reach says which parent of path is closed to the identity.
func (i *identity) reach(path string) error {
	if i == nil {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if info.Mode().Perm()&0o001 == 0 && (!ok || stat.Uid != i.uid) {
			return fmt.Errorf("%s is closed to user %d, whom PostgreSQL runs as because it refuses root: "+
				"choose another place for %s, or open it (chmod o+x)", dir, i.uid, path)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// confine makes cmd run as the identity and die by sig when we do.
func confine(cmd *exec.Cmd, as *identity, sig syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: sig, Setpgid: true}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid, NoSetGroups: false}
	}
}

// killFamily kills a process and its children at the same moment, as a power
// cut would: it is stopped first so that it starts no more of them.
func killFamily(pid int) error {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	family := append(childrenOf(pid), pid)
	for _, member := range family {
		if err := syscall.Kill(member, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("kill %d: %w", member, err)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, member := range family[:len(family)-1] {
		for time.Now().Before(deadline) {
			if state, _ := stateOf(member); state == "" || state == "Z" {
				break
			}
			time.Sleep(time.Millisecond) // orphans are not ours to wait for
		}
	}
	return nil
}

func childrenOf(parent int) []int {
	var children []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if state, itsParent := stateOf(pid); itsParent == parent && state != "Z" {
			children = append(children, pid)
		}
	}
	return children
}

// stateOf reads the third and fourth fields of a process's stat, which follow a
// name in brackets that may hold anything.
func stateOf(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
