package main

import "io"

func printHelp(io.Writer, *invocation) error { return nil }
