//go:build !unix

package main

import "os"

// There is no pause here: the attempt fails.
var stopSignal, continueSignal os.Signal = os.Interrupt, os.Interrupt
