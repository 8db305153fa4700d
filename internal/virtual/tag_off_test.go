//go:build !synctests

package virtual

const tagged = false
