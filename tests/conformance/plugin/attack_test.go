package plugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
)

// levels runs f at each level that this machine has.
func levels(t *testing.T, f func(t *testing.T, w *world)) {
	for _, l := range []sandbox.Level{sandbox.Isolated, sandbox.Restricted} {
		t.Run(l.String(), func(t *testing.T) {
			w := open(t, func(o *plugins.Options) { o.Most = l })
			if had, why := w.Level(); had != l {
				t.Skipf("level %s cannot be had here: %v", l, why)
			}
			w.install(sandbox.Restricted)
			f(t, w)
		})
	}
}

// victims are what a plugin would like to reach: servers and files of the host.
func victims(t *testing.T) map[string]attack {
	t.Helper()
	dir, err := os.MkdirTemp("", "victim-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o666); err != nil {
		t.Fatal(err)
	}
	touched := make(chan string, 100)
	listen := func(network, addr string) string {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				touched <- network
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	tcp := listen("tcp", "127.0.0.1:0")
	path := listen("unix", filepath.Join(dir, "s"))
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	abstract := listen("unix", fmt.Sprintf("@reprieve-victim-%d", os.Getpid()))
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		udp.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if n, _, err := udp.ReadFrom(make([]byte, 10)); err == nil {
			t.Errorf("%d bytes reached a UDP port of the host", n)
		}
		udp.Close()
		select {
		case what := <-touched:
			t.Errorf("a %s server of the host was reached", what)
		default:
		}
		if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
			t.Errorf("a file of the host was changed: %q %v", b, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Error("a file was made on the host")
		}
	})
	me := fmt.Sprint(os.Getpid())
	return map[string]attack{
		"TCP of the host": {"tcp: " + tcp, killed}, "UDP of the host": {"udp: " + udp.LocalAddr().String(), killed}, "Unix socket of the host": {"unix: " + path, killed},
		"abstract socket of the host": {"unix: " + abstract, killed}, "listen on TCP": {"listen: ", killed}, "netlink": {"netlink: ", killed},
		"a file that all may read": {"read: " + secret, blocked}, "password file": {"read: /etc/passwd", blocked},
		"environment of the host": {"read: /proc/" + me + "/environ", blocked}, "environment of process 1": {"read: /proc/1/environ", blocked},
		"list the root folder": {"list: /", blocked}, "list processes": {"list: /proc", blocked},
		"write a file that all may write": {"write: " + secret, blocked}, "make a file": {"write: " + filepath.Join(dir, "new"), blocked},
		"write to /tmp": {"write: /tmp/reprieve-plugin-was-here", blocked}, "fill its folder": {"fill: ", blocked}, "files of the host": {"fds: ", blocked},
		"a shell": {"exec: ", blocked}, "execute": {"execve: ", killed}, "fork": {"fork: ", killed}, "fork bomb": {"bomb: ", killed}, "thread bomb": {"threads: ", killed},
		"signal the host": {"kill: " + me, killed}, "signal everybody": {"kill: -1", killed}, "ptrace the host": {"ptrace: " + me, killed},
		"4 GiB of memory": {"memory: ", killed}, "shared memory": {"shared: ", blocked}, "namespaces": {"unshare: ", killed}, "mount": {"mount: ", killed},
		"symbolic link": {"symlink: ", killed}, "become root": {"setuid: ", killed},
		// Ways that look like ordinary work.
		"kill the host by a file's signal": {"sigio: " + me, killed}, "the same by the later call": {"sigio-ex: " + me, killed},
		"size and time of a file": {"stat: " + secret, blocked}, "whether a file is there": {"access: " + secret, blocked},
		"a file by its path alone": {"path-only: " + secret, blocked}, "where a link leads": {"readlink: /proc/self/exe", blocked},
	}
}

// attack is the value of a record, and what must come of it.
type attack struct {
	value string
	want  outcome
}

func TestEveryAttackIsBlockedOrEndsTheProcess(t *testing.T) {
	levels(t, func(t *testing.T, w *world) {
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		for name, a := range victims(t) {
			t.Run(name, func(t *testing.T) { w.attacked(t, tr, a.value, a.want) })
		}
	})
}

func TestThePluginSeesNoEnvironmentButItsOwn(t *testing.T) {
	t.Setenv("DATABASE_PASSWORD", "hunter2")
	levels(t, func(t *testing.T, w *world) {
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		out := repair(t, tr, "env")
		for _, line := range strings.Split(string(out[0].Value), "\n") {
			name, _, _ := strings.Cut(line, "=")
			switch name {
			case "REPRIEVE_PLUGIN", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_UNIX_SOCKET_DIR", "LC_ALL", "TZ", "PYTHONHASHSEED":
			default:
				t.Errorf("it sees %q", line)
			}
		}
	})
}

func TestTheRecordThatHurtsIsFoundAndTheOthersAreRepaired(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.Call = 3 * time.Second }) // long enough that a busy machine blames nobody else
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]pipeline.Code{
		"exit": pipeline.CodePluginCrashed, "panic": pipeline.CodePluginCrashed, "hang": pipeline.CodePluginTimeout, "spin": pipeline.CodePluginTimeout,
		"big": pipeline.CodePluginAnswer, "lie: count": pipeline.CodePluginAnswer, "lie: more": pipeline.CodePluginAnswer, "lie: item": pipeline.CodePluginAnswer,
		"lie: late": pipeline.CodePluginTimeout, "lie: batch": pipeline.CodePluginAnswer, "lie: outcome": pipeline.CodePluginAnswer, "lie: unchanged": pipeline.CodePluginAnswer,
		"lie: report": pipeline.CodePluginAnswer, "lie: path": pipeline.CodePluginAnswer, "lie: card": pipeline.CodePluginAnswer,
		"lie: empties": pipeline.CodePluginAnswer, "lie: varint": pipeline.CodePluginAnswer, "lie: deep": pipeline.CodePluginAnswer, "lie: open": pipeline.CodePluginAnswer,
		"lie: utf8": pipeline.CodePluginAnswer, "lie: unknown": pipeline.CodePluginAnswer, "lie: headers": pipeline.CodePluginAnswer,
	} {
		t.Run(value, func(t *testing.T) {
			values := make([]string, 20)
			for i := range values {
				values[i] = "fine"
			}
			values[13] = value
			for i, r := range repair(t, tr, values...) {
				switch {
				case i == 13 && (code(&r) != want || string(r.Value) != value):
					t.Errorf("code %q, want %q; value %q", code(&r), want, r.Value)
				case i != 13 && (r.Failure != nil || string(r.Value) != "fixed"):
					t.Errorf("record %d paid for it: %+v", i, r.Failure)
				}
			}
		})
	}
	t.Run("another order", func(t *testing.T) { // alone it is no lie
		out := repair(t, tr, "lie: order", "fine", "fine")
		for i := range out {
			if out[i].Failure != nil || string(out[i].Value) != "fixed" {
				t.Errorf("record %d: %+v", i, out[i].Failure)
			}
		}
	})
	noCard(t, "the log", w.log.String())
}

func TestTwoAnswersForOneBatchStopTheVersion(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.RepeatOneIn = 1 })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	if out := repair(t, tr, "fine"); out[0].Failure != nil {
		t.Fatal(out[0].Failure)
	}
	if out := repair(t, tr, "random", "fine"); code(&out[0]) != pipeline.CodePluginNondeterministic || code(&out[1]) != pipeline.CodePluginNondeterministic {
		t.Fatal(out[0].Failure, out[1].Failure)
	}
	if out := repair(t, tr, "fine"); code(&out[0]) != pipeline.CodePluginRefused {
		t.Fatal("the version is not stopped:", out[0].Failure)
	}
	if _, err := w.transform(`{"a":1}`); pipeline.CodeOf(err) != pipeline.CodePluginNondeterministic {
		t.Fatal("it is built again:", err)
	}
	w.Close()
	again := open(t, func(o *plugins.Options) { o.Dir, o.Lock = w.o.Dir, w.o.Lock })
	if _, err := again.transform(""); pipeline.CodeOf(err) != pipeline.CodePluginNondeterministic || !strings.Contains(err.Error(), "was stopped") {
		t.Fatal("another host runs it again:", err)
	}
}

func TestAPluginThatKeepsFailingIsLeftAlone(t *testing.T) {
	now := time.Now()
	w := open(t, func(o *plugins.Options) { o.Failures = 3; o.Clock = func() time.Time { return now } })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if out := repair(t, tr, "exit"); code(&out[0]) != pipeline.CodePluginCrashed {
			t.Fatal(out[0].Failure)
		}
	}
	if out := repair(t, tr, "fine"); code(&out[0]) != pipeline.CodePluginUnavailable {
		t.Fatal(out[0].Failure)
	}
	now = now.Add(time.Hour)
	if out := repair(t, tr, "fine"); out[0].Failure != nil {
		t.Fatal(out[0].Failure)
	}
}

func TestACallerThatGivesUpEndsTheCall(t *testing.T) {
	w := open(t, func(o *plugins.Options) { o.Call = time.Minute })
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := tr.Repair(ctx, envelopes("hang")); err == nil {
		t.Fatal("it answered")
	}
	if out := repair(t, tr, "fine"); out[0].Failure != nil {
		t.Fatal(out[0].Failure)
	}
}
