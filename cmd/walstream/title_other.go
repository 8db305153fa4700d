//go:build !linux

package main

// hideArguments is for systems where arguments can be written over.
func hideArguments(func(string) string) {}
