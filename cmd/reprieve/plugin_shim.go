package main

import (
	"os"

	"reprieve.dev/plugins/sandbox"
)

// The program is also the shim that starts plugins: it becomes one before anything is opened or started.
func init() {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Verb {
		sandbox.Main()
	}
}
