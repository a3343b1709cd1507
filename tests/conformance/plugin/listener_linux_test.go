package plugin

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
)

// underListener puts a filter with a listener on every thread, as some container runtimes do: a second listener is not to be had.
func underListener() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	all := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	f := unix.SockFprog{Len: 1, Filter: &all}
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH, uintptr(unsafe.Pointer(&f)))
	if e != 0 {
		return e
	}
	return nil
}

func TestWhereTheFilterHasNoListenerTheReportSaysSo(t *testing.T) {
	if os.Getenv("UNDER_LISTENER") != "" {
		if err := underListener(); err != nil {
			t.Skip("no filter with a listener can be had here: ", err)
		}
		w := open(t, func(o *plugins.Options) { o.Most = sandbox.Restricted })
		w.install(sandbox.Restricted)
		fmt.Println("REPORT", w.did.Level, w.did.Missing)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWhereTheFilterHasNoListenerTheReportSaysSo$", "-test.v")
	cmd.Env = append(os.Environ(), "UNDER_LISTENER=1", "REPRIEVE_TEST_HOSTILE="+hostile)
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(text, "--- SKIP"):
		t.Skip(text)
	case !strings.Contains(text, "REPORT restricted") || !strings.Contains(text, "names in the abstract namespace can be bound"):
		t.Errorf("it says nothing of it:\n%s", out)
	}
}
