package connect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Connect's REST interface, as far as moving to and from a connector needs it.
// https://kafka.apache.org/documentation/#connect_rest

// restError is an answer that is no success.
type restError struct {
	status  int
	message string
}

func (e *restError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.message) }

// ask sends a request and reads the answer into into, if there is one.
func (w *Worker) ask(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, w.process.URL+path, reader)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %w", method, path, &restError{response.StatusCode, strings.TrimSpace(string(text))})
	}
	if into != nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// change sends a request that Connect refuses while it is rebalancing.
func (w *Worker) change(ctx context.Context, method, path string, body any) error {
	return w.until(ctx, method+" "+path, func() (bool, error) {
		err := w.ask(ctx, method, path, body, nil)
		var refused *restError
		if errors.As(err, &refused) && (refused.status == http.StatusConflict || refused.status == http.StatusServiceUnavailable) {
			return false, nil
		}
		return err == nil, err
	})
}

// Put makes a connector, or gives it another configuration.
func (w *Worker) Put(ctx context.Context, name string, config map[string]string) error {
	return w.change(ctx, "PUT", "/connectors/"+name+"/config", config)
}

// Delete removes a connector; its offsets stay.
func (w *Worker) Delete(ctx context.Context, name string) error {
	return w.change(ctx, "DELETE", "/connectors/"+name, nil)
}

// StopConnector ends the connector's task, as PUT .../stop does, and waits for it.
func (w *Worker) StopConnector(ctx context.Context, name string) error {
	if err := w.change(ctx, "PUT", "/connectors/"+name+"/stop", nil); err != nil {
		return err
	}
	return w.WaitState(ctx, name, "STOPPED", 0)
}

// Pause leaves the task where it is, with its connection to PostgreSQL.
func (w *Worker) Pause(ctx context.Context, name string) error {
	if err := w.change(ctx, "PUT", "/connectors/"+name+"/pause", nil); err != nil {
		return err
	}
	return w.WaitState(ctx, name, "PAUSED", 1)
}

// Resume starts a stopped or paused connector. It waits for nothing.
func (w *Worker) Resume(ctx context.Context, name string) error {
	return w.change(ctx, "PUT", "/connectors/"+name+"/resume", nil)
}

// Status of a connector.
type Status struct {
	Connector struct{ State string }
	Tasks     []struct{ State, Trace string }
}

// Status asks for it.
func (w *Worker) Status(ctx context.Context, name string) (s Status, err error) {
	err = w.ask(ctx, "GET", "/connectors/"+name+"/status", nil, &s)
	return s, err
}

// TaskFailed is a connector whose task ended by an error, or that could not start.
type TaskFailed struct{ Trace string }

func (e *TaskFailed) Error() string { return "the connector failed: " + e.Trace }

// Failed returns a *TaskFailed when one of the connector's tasks has ended by an
// error, and why nobody can tell when the worker has ended.
func (w *Worker) Failed(ctx context.Context, name string) error {
	s, err := w.Status(ctx, name)
	if err != nil && !w.process.Running() {
		return fmt.Errorf("Kafka Connect ended: %s\n%s", w.Usage(), w.Log())
	}
	for _, t := range s.Tasks {
		if t.State == "FAILED" {
			return &TaskFailed{t.Trace}
		}
	}
	return nil // it may not know it yet
}

// WaitState waits until the connector and its tasks, so many, are in the state.
func (w *Worker) WaitState(ctx context.Context, name, state string, tasks int) error {
	return w.until(ctx, name+" to be "+state, func() (bool, error) {
		s, err := w.Status(ctx, name)
		if err != nil {
			return false, ctx.Err() // it may not know it yet
		}
		done := s.Connector.State == state && len(s.Tasks) == tasks
		for _, t := range s.Tasks {
			if t.State == "FAILED" && state == "RUNNING" {
				return false, &TaskFailed{t.Trace}
			}
			done = done && t.State == state
		}
		return done, nil
	})
}

// Offset is one stored position of a connector.
type Offset struct {
	Partition map[string]any `json:"partition"`
	Offset    map[string]any `json:"offset"` // null removes it
}

// Offsets asks for those that are stored.
func (w *Worker) Offsets(ctx context.Context, name string) ([]Offset, error) {
	var answer struct{ Offsets []Offset }
	err := w.ask(ctx, "GET", "/connectors/"+name+"/offsets", nil, &answer)
	return answer.Offsets, err
}

// SetOffsets replaces stored positions of a stopped connector.
func (w *Worker) SetOffsets(ctx context.Context, name string, offsets []Offset) error {
	return w.change(ctx, "PATCH", "/connectors/"+name+"/offsets", map[string]any{"offsets": offsets})
}

// DeleteOffsets removes those of a stopped connector.
func (w *Worker) DeleteOffsets(ctx context.Context, name string) error {
	return w.change(ctx, "DELETE", "/connectors/"+name+"/offsets", nil)
}
