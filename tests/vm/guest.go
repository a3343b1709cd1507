//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// guest is the machine's init: it mounts what the tests need, runs them, says how it went and turns the machine off.
func guest() {
	said := "the machine cannot be prepared"
	if err := prepare(); err != nil {
		said += ": " + err.Error()
	} else {
		said = tests()
	}
	fmt.Println(verdict + said)
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}
	select {}
}

const groups = "/sys/fs/cgroup"

func prepare() error {
	// The first root folder of a machine cannot be left by pivot_root, as the sandbox does: stand in one that can.
	for _, step := range []func() error{
		func() error { return os.MkdirAll("/root", 0o755) },
		func() error { return unix.Mount("/", "/root", "", unix.MS_BIND, "") },
		func() error { return unix.Chdir("/root") },
		func() error { return unix.Mount(".", "/", "", unix.MS_MOVE, "") },
		func() error { return unix.Chroot(".") },
		func() error { return unix.Mount("proc", "/proc", "proc", 0, "") },
		func() error { return unix.Mount("sys", "/sys", "sysfs", 0, "") },
		func() error { return unix.Mount("dev", "/dev", "devtmpfs", 0, "") },
		func() error { return unix.Mount("groups", groups, "cgroup2", 0, "") },
		func() error { return unix.Mount("tmp", "/tmp", "tmpfs", 0, "mode=1777") },
		loopback,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return os.WriteFile(groups+"/cgroup.subtree_control", []byte("+memory +pids"), 0)
}

// loopback turns the network of the machine to itself on.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

func tests() string {
	text, err := os.ReadFile("/plan.json")
	if err != nil {
		return err.Error()
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return err.Error()
	}
	var failed []string
	for _, t := range p.Runs {
		fmt.Println("vm: running", t.Name)
		if err := t.run(); err != nil {
			fmt.Println("vm: failed", t.Name, err)
			failed = append(failed, t.Name)
		}
	}
	if len(failed) > 0 {
		return strings.Join(failed, "; ")
	}
	return "pass"
}

func (t *test) run() error {
	cmd := exec.Command(t.Args[0], t.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.Dir, os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=/", "HOME=/tmp", "REPRIEVE_TEST_HOSTILE=/tests/hostile", "REPRIEVE_TEST_GROUPS=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(t.UID), Gid: uint32(t.UID)}}
	if t.Group != "" {
		dir, err := delegate(t.Group, t.UID)
		if err != nil {
			return err
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	return cmd.Run()
}

// delegate makes a group as a service manager does that gives it away: owned by the user, marked, with the service in one below it.
func delegate(name string, uid int) (*os.File, error) {
	dir := filepath.Join(groups, name)
	below := filepath.Join(dir, "main")
	for _, d := range []string{dir, below} {
		if err := os.Mkdir(d, 0o755); err != nil && !os.IsExist(err) {
			return nil, err
		}
		for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(d, f), uid, uid); err != nil {
				return nil, err
			}
		}
	}
	if err := unix.Setxattr(dir, "user.delegate", []byte("1"), 0); err != nil {
		return nil, os.NewSyscallError("setxattr", err)
	}
	return os.Open(below)
}
