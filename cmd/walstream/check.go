package main

import (
	"context"
	"errors"
)

// check reports everything that is missing, each with the fix.
func check(_ context.Context, _ *Config, _ streams) error {
	return errors.New("not built yet")
}
