package main

import "syscall"

func legacy() int64

func int80() error {
	if n := legacy(); n < 0 {
		return syscall.Errno(-n)
	}
	return nil
}
