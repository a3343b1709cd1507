//go:build linux && !amd64

package sandbox

import "golang.org/x/sys/unix"

// filter: the policy is written for x86-64 so far; levels restricted and isolated are refused elsewhere.
func filter(terms) (_ []unix.SockFilter, ok bool) { return nil, false }
