//go:build !amd64

package main

import "syscall"

func int80() error { return syscall.ENOSYS } // there is no such door
