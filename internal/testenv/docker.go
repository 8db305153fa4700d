package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// ownerLabel names the directory whose lock the container's owner holds.
const ownerLabel = "walstream.testenv.owner"

// pullTimeout bounds the download of an image.
const pullTimeout = 5 * time.Minute

// engine finds a Docker engine, once a process. A machine without one pays for
// a look at a file, not for a time-out.
var engine = sync.OnceValues(func() (*dockertest.Pool, error) {
	endpoint := os.Getenv("DOCKER_HOST")
	if endpoint == "" && runtime.GOOS != "windows" {
		for _, socket := range []string{"/var/run/docker.sock", filepath.Join(os.Getenv("HOME"), ".docker/run/docker.sock")} {
			if exists(socket) {
				endpoint = "unix://" + socket
				break
			}
		}
		if endpoint == "" {
			return nil, closed("no engine's socket, and DOCKER_HOST is not set")
		}
	}
	if at, err := url.Parse(endpoint); err == nil && at.Scheme == "unix" {
		conn, err := net.DialTimeout("unix", at.Path, time.Second)
		if err != nil {
			return nil, closed("no engine answers: %v", err)
		}
		_ = conn.Close()
	}
	pool, err := dockertest.NewPool(endpoint)
	if err != nil {
		return nil, closed("no engine: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := pool.Client.PingWithContext(ctx); err != nil {
		return nil, closed("no engine answers: %v", err)
	}
	return pool, nil
})

// container is a server in a container on fixed ports of loopback, which keep
// through a stop and a start.
type container struct {
	pool    *dockertest.Pool
	id      string
	temp    *tempDir
	claimed *ports
}

// runContainer makes and starts a container. ports are published as they are on
// the host: 5432/tcp, or the host's own number where a server must know it.
func runContainer(ctx context.Context, claimed *ports, o *dockertest.RunOptions) (*container, error) {
	pool, err := engine()
	if err != nil {
		return nil, err
	}
	if err := pull(ctx, pool, o.Repository, o.Tag); err != nil {
		return nil, err
	}
	temp, err := newTempDir(ctx, "container", nil)
	if err != nil {
		return nil, err
	}
	removeOrphans(ctx, pool)
	o.Labels = map[string]string{ownerLabel: temp.path}
	resource, err := pool.RunWithOptions(o, func(host *docker.HostConfig) { host.PublishAllPorts = false })
	if err != nil {
		temp.remove()
		return nil, err
	}
	return &container{pool: pool, id: resource.Container.ID, temp: temp, claimed: claimed}, nil
}

// pull gets an image unless it is there. One that cannot be had closes this way.
func pull(ctx context.Context, pool *dockertest.Pool, repository, tag string) error {
	if _, err := pool.Client.InspectImage(repository + ":" + tag); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	err := pool.Client.PullImage(docker.PullImageOptions{Repository: repository, Tag: tag, Context: ctx}, docker.AuthConfiguration{})
	if err != nil {
		return closed("pull %s:%s: %v", repository, tag, err)
	}
	return nil
}

// removeOrphans removes the containers of processes that were killed: the
// directory of theirs is swept by now.
func removeOrphans(ctx context.Context, pool *dockertest.Pool) {
	all, err := pool.Client.ListContainers(docker.ListContainersOptions{
		All: true, Context: ctx, Filters: map[string][]string{"label": {ownerLabel}},
	})
	if err != nil {
		return
	}
	for _, c := range all {
		if !exists(c.Labels[ownerLabel]) {
			_ = pool.Client.RemoveContainer(docker.RemoveContainerOptions{ID: c.ID, Force: true, RemoveVolumes: true, Context: ctx})
		}
	}
}

// publish binds a port of the container to one of loopback.
func publish(bindings map[docker.Port][]docker.PortBinding, inside, outside int) {
	port := docker.Port(strconv.Itoa(inside) + "/tcp")
	bindings[port] = []docker.PortBinding{{HostIP: "127.0.0.1", HostPort: strconv.Itoa(outside)}}
}

func exposed(bindings map[docker.Port][]docker.PortBinding) (names []string) {
	for port := range bindings {
		names = append(names, string(port))
	}
	return names
}

func (c *container) startAgain(ctx context.Context) error {
	err := c.pool.Client.StartContainerWithContext(c.id, nil, ctx)
	var running *docker.ContainerAlreadyRunning
	if errors.As(err, &running) {
		return nil
	}
	return err
}

func (c *container) signal(sig docker.Signal, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := c.pool.Client.KillContainer(docker.KillContainerOptions{ID: c.id, Signal: sig, Context: ctx})
	var stopped *docker.ContainerNotRunning
	if errors.As(err, &stopped) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := c.pool.Client.WaitContainerWithContext(c.id, ctx); err != nil {
		return fmt.Errorf("container %.12s still runs %v after signal %d: %w", c.id, wait, sig, err)
	}
	return nil
}

func (c *container) running() bool {
	state, err := c.pool.Client.InspectContainer(c.id)
	return err == nil && state.State.Running
}

// pid is the process as the host's kernel numbers it.
func (c *container) pid() int {
	state, err := c.pool.Client.InspectContainer(c.id)
	if err != nil {
		return 0
	}
	return state.State.Pid
}

func (c *container) log() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var text bytes.Buffer
	err := c.pool.Client.Logs(docker.LogsOptions{
		Context: ctx, Container: c.id, OutputStream: &text, ErrorStream: &text, Tail: "40", Stdout: true, Stderr: true,
	})
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	return "the end of the container's log:\n" + text.String()
}

func (c *container) close() {
	_ = c.pool.Client.RemoveContainer(docker.RemoveContainerOptions{ID: c.id, Force: true, RemoveVolumes: true})
	c.temp.remove()
	c.claimed.release()
}
