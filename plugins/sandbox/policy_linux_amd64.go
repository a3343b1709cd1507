package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// Namespace flags of clone.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
	unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

// What ioctl may set: close a file on exec, or not, and do not wait for it (asm-generic/ioctls.h).
const (
	fioclex  = 0x5451
	fionclex = 0x5450
	fionbio  = 0x5421
)

// What arch_prctl may be asked for (asm/prctl.h).
const (
	archSetFS = 0x1002
	archGetFS = 0x1003
)

// allowed are the calls that a server on one Unix socket needs. Which files openat may open is up to the root folder and Landlock.
var allowed = []uint32{
	unix.SYS_FUTEX, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_CTL, unix.SYS_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_SCHED_YIELD, unix.SYS_MADVISE, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_RT_SIGRETURN,
	unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_CLOSE,
	unix.SYS_FSTAT, unix.SYS_LSEEK, unix.SYS_GETDENTS64, unix.SYS_UNLINKAT, unix.SYS_UNLINK, unix.SYS_GETCWD,
	unix.SYS_BRK, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CREATE, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_PIPE,
	unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_TIME, unix.SYS_GETRANDOM, unix.SYS_LISTEN,
	unix.SYS_ACCEPT4, unix.SYS_ACCEPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_SHUTDOWN,
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID,
	unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_SCHED_GETAFFINITY, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_RESTART_SYSCALL, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SET_TID_ADDRESS, unix.SYS_DUP,
	unix.SYS_DUP2, unix.SYS_DUP3, unix.SYS_POLL, unix.SYS_PPOLL, unix.SYS_MEMBARRIER, unix.SYS_GETRLIMIT, unix.SYS_GETRUSAGE,
	unix.SYS_SYSINFO, unix.SYS_MINCORE, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
}

// attacks are calls that no honest plugin makes: they end the process.
var attacks = []uint32{
	unix.SYS_CONNECT, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_CLONE,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_BPF, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_KEYCTL, unix.SYS_ADD_KEY,
	unix.SYS_REQUEST_KEY, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_SYMLINK,
	unix.SYS_SYMLINKAT, unix.SYS_LINK, unix.SYS_LINKAT, unix.SYS_MKNOD, unix.SYS_MKNODAT, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_MSGGET, unix.SYS_SEMGET,
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_SETGROUPS,
	unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_CAPSET, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PROCESS_MADVISE,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_QUOTACTL, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_KCMP,
}

// looks are calls that tell about a file by its path. Landlock does not rule over them, so they are for roots of a plugin's own.
var looks = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_FACCESSAT, unix.SYS_READLINK, unix.SYS_READLINKAT}

// Options of sockets that hand out a handle of the other end's process; and that run a program of the plugin's in the kernel, or tell
// which devices of the network the host has (asm-generic/socket.h).
var (
	handingOptions = []uint64{77}
	settingOptions = []uint64{26, 50, 51, 52, unix.SO_BINDTODEVICE, unix.SO_BINDTOIFINDEX}
)

// clocks are those that tell the time of day; the others count from the machine's start, and timers need them.
var clocks = []uint64{unix.CLOCK_REALTIME, unix.CLOCK_REALTIME_COARSE, unix.CLOCK_REALTIME_ALARM, unix.CLOCK_TAI}

// highHalf is what an argument may not have where the kernel looks at its low half only: a rule compares both.
const highHalf = 0xffffffff << 32

// policy is what a plugin may call on these terms. What has no rule fails with EPERM.
func policy(t terms) []rule {
	bad := uint32(actKill)
	if t.errno {
		bad = actErrno(unix.EPERM)
	}
	when := func(cs ...condition) []condition { return cs }
	var rs []rule
	if t.asks && t.elsewhere {
		for _, c := range clocks {
			rs = append(rs, rule{unix.SYS_CLOCK_GETTIME, actAsk, when(condition{0, equal, c})})
		}
		rs = append(rs, rule{unix.SYS_GETTIMEOFDAY, actAsk, nil}, rule{unix.SYS_TIME, actAsk, nil}, rule{unix.SYS_UNAME, actAsk, nil})
	}
	for _, nr := range allowed {
		rs = append(rs, rule{nr, actAllow, nil})
	}
	look := uint32(actAllow)
	if t.level < Isolated {
		look = actErrno(unix.EACCES)
	}
	for _, nr := range looks {
		rs = append(rs, rule{nr, look, nil})
	}
	shared := uint32(actAllow) // what level isolated has for itself, and others share with the host
	if t.asks && t.level < Isolated {
		shared = actAsk
	}
	option := func(nr uint32, names []uint64) {
		rs = append(rs, rule{nr, bad, when(condition{1, anySet, highHalf})}, rule{nr, bad, when(condition{2, anySet, highHalf})})
		for _, name := range names {
			rs = append(rs, rule{nr, bad, when(condition{1, equal, unix.SOL_SOCKET}, condition{2, equal, name})})
		}
		rs = append(rs, rule{nr, actAllow, nil})
	}
	option(unix.SYS_GETSOCKOPT, handingOptions)
	option(unix.SYS_SETSOCKOPT, settingOptions)
	for _, c := range []struct{ nr, flags uint32 }{{unix.SYS_SENDTO, 3}, {unix.SYS_RECVFROM, 3}, {unix.SYS_SENDMSG, 2}, {unix.SYS_RECVMSG, 2}} {
		// Urgent bytes of Unix sockets: nobody needs them, and the kernel's way of keeping them has been a way into it.
		rs = append(rs, rule{c.nr, bad, when(condition{c.flags, anySet, unix.MSG_OOB})}, rule{c.nr, actAllow, nil})
	}
	for _, c := range []uint64{unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL} {
		rs = append(rs, rule{unix.SYS_FCNTL, actAllow, when(condition{1, equal, c})})
	}
	rs = append(rs,
		// A file that is open by its path alone tells about it as a look does.
		rule{unix.SYS_OPENAT, actErrno(unix.EACCES), when(condition{2, anySet, unix.O_PATH})},
		rule{unix.SYS_OPENAT, actAllow, nil},
		rule{unix.SYS_OPEN, actErrno(unix.EACCES), when(condition{1, anySet, unix.O_PATH})},
		rule{unix.SYS_OPEN, actAllow, nil},
		rule{unix.SYS_BIND, shared, nil},
		rule{unix.SYS_UNAME, shared, nil},
		// Who gets signals of a file, and which, may be anybody: nothing here needs them.
		rule{unix.SYS_FCNTL, actAllow, when(condition{1, equal, unix.F_SETFL}, condition{2, allClear, unix.O_ASYNC})},
		rule{unix.SYS_FCNTL, bad, when(condition{1, equal, unix.F_SETOWN})},
		rule{unix.SYS_FCNTL, bad, when(condition{1, equal, unix.F_SETOWN_EX})},
		rule{unix.SYS_FCNTL, bad, when(condition{1, equal, unix.F_SETSIG})},
		// A stack that is moved grows as it likes, and no limit counts it. Who meets the refusal copies.
		rule{unix.SYS_MREMAP, actErrno(unix.ENOMEM), nil},
		// Only private memory, and none that grows down: shared memory and stacks are not counted by the memory limit.
		rule{unix.SYS_MMAP, actAllow, when(condition{3, anySet, unix.MAP_PRIVATE}, condition{3, allClear, unix.MAP_SHARED | unix.MAP_GROWSDOWN})},
		rule{unix.SYS_SOCKET, actAllow, when(condition{0, equal, unix.AF_UNIX}, condition{1, anySet, unix.SOCK_STREAM}, condition{1, allClear, 0xe})},
		rule{unix.SYS_CLONE, actAllow, when(condition{0, anySet, unix.CLONE_THREAD}, condition{0, allClear, namespaces})},
		rule{unix.SYS_KILL, actAllow, when(condition{0, equal, uint64(t.pid)})},
		rule{unix.SYS_TGKILL, actAllow, when(condition{0, equal, uint64(t.pid)})},
		rule{unix.SYS_PRLIMIT64, actAllow, when(condition{0, equal, 0})},
		rule{unix.SYS_PRCTL, actAllow, when(condition{0, equal, unix.PR_SET_NAME})},
		rule{unix.SYS_PRCTL, actAllow, when(condition{0, equal, unix.PR_SET_VMA})},
		rule{unix.SYS_EXECVEAT, actAllow, when(condition{0, equal, fdArtifact}, condition{4, equal, unix.AT_EMPTY_PATH})},
		// The base of a thread's own memory, and no feature of the processor.
		rule{unix.SYS_ARCH_PRCTL, actAllow, when(condition{0, equal, archSetFS})},
		rule{unix.SYS_ARCH_PRCTL, actAllow, when(condition{0, equal, archGetFS})},
		rule{unix.SYS_ARCH_PRCTL, actErrno(unix.EINVAL), nil},
		// What interpreters set on files that they have open; nothing behind a file can be reached with these.
		rule{unix.SYS_IOCTL, actAllow, when(condition{1, equal, fioclex})},
		rule{unix.SYS_IOCTL, actAllow, when(condition{1, equal, fionclex})},
		rule{unix.SYS_IOCTL, actAllow, when(condition{1, equal, fionbio})},
		rule{unix.SYS_IOCTL, actErrno(unix.ENOTTY), nil},
		rule{unix.SYS_CLONE3, actErrno(unix.ENOSYS), nil},
		rule{unix.SYS_OPENAT2, actErrno(unix.ENOSYS), nil},
		rule{unix.SYS_FACCESSAT2, actErrno(unix.ENOSYS), nil},
	)
	for _, nr := range attacks {
		rs = append(rs, rule{nr, bad, nil})
	}
	return rs
}

// filter is the compiled policy; ok: this machine has one.
func filter(t terms) (_ []unix.SockFilter, ok bool) {
	return compile(auditArch, policy(t), actErrno(unix.EPERM), actKill), true
}
