//go:build race

package redrive

// raced tells that the race detector slows everything down.
const raced = true
