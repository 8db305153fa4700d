package main

import (
	"context"
	"errors"
)

// stream runs the pipeline until it is stopped.
func stream(_ context.Context, _ *Config, _ streams) error {
	return errors.New("not built yet")
}
