package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Ports are taken below Linux's ephemeral range (32768 up), where an outgoing
// connection of anybody could be sitting on a port between Stop and Start.
const firstPort, lastPort = 24000, 31999

// ports holds claimed ports until release.
type ports struct {
	numbers []int
	locks   []*os.File
}

// claimPorts claims n free ports for this process.
func claimPorts(n int) (*ports, error) {
	root, err := cacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	claimed := &ports{}
	for range 1000 {
		if len(claimed.numbers) == n {
			return claimed, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := tryLock(filepath.Join(dir, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := portFree(port); err != nil {
			_ = lock.Close()
			continue
		}
		claimed.numbers = append(claimed.numbers, port)
		claimed.locks = append(claimed.locks, lock)
	}
	claimed.release()
	return nil, errors.New("find free ports: 1000 tries were in vain")
}

func (p *ports) release() {
	if p == nil {
		return
	}
	for _, lock := range p.locks {
		_ = lock.Close()
	}
	p.locks = nil
}

func portFree(port int) error {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return fmt.Errorf("port %d is taken: %w", port, err)
	}
	return l.Close()
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
