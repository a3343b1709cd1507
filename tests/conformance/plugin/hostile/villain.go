package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"reprieve.dev/plugins/sdk"
)

// villain attacks as the value of a record says.
type villain struct {
	limit bool // it writes into each record how much memory it may have: the same in every process, as long as nobody changes that
}

func (v *villain) Configure(config []byte) error {
	if strings.Contains(string(config), "refuse") {
		return fmt.Errorf("unknown key \"refuse\"")
	}
	v.limit = strings.Contains(string(config), "limit")
	return nil
}

// limited adds the memory limit to a document.
func limited(value []byte) sdk.Result {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(2, &l); err != nil { // RLIMIT_DATA
		return sdk.Rejected(err.Error())
	}
	doc := map[string]any{}
	if err := json.Unmarshal(value, &doc); err != nil {
		return sdk.Rejected(err.Error())
	}
	doc["memory"] = strconv.FormatUint(l.Max, 10)
	text, err := json.Marshal(doc)
	if err != nil {
		return sdk.Rejected(err.Error())
	}
	return sdk.Repaired().SetValue(text)
}

// verb is what a live record asks for: {"do": "hang"}.
func verb(value []byte) string {
	var v struct{ Do string }
	_ = json.Unmarshal(value, &v) // anything else asks for nothing
	return v.Do
}

// Process attacks as the member "do" of a record says, and adds to what is left.
func (v *villain) Process(r *sdk.Record) sdk.Mark {
	do := verb(r.Value)
	if rule, ok := strings.CutPrefix(do, "reject: "); ok {
		return sdk.Reject(rule)
	}
	if do != "" && !strings.HasPrefix(do, "lie") {
		out := v.Repair(&sdk.Envelope{Value: []byte(do)}).Wire()
		if string(out.GetValue().GetValue()) == "THROUGH" {
			return sdk.Pass().Header("through", []byte(do))
		}
		if out.Reason == "blocked" {
			return sdk.Reject("blocked")
		}
		if do == "random" {
			return sdk.Pass().Header("random", out.GetValue().GetValue())
		}
	}
	return sdk.Pass().Header("seen", r.View).Integer("score", 7).Bool("good", true).Number("share", 0.5).Text("word", "w")
}

func (v *villain) Repair(e *sdk.Envelope) sdk.Result {
	if v.limit {
		return limited(e.Value)
	}
	verb, arg, _ := strings.Cut(string(e.Value), ": ")
	if f, ok := attacks[verb]; ok {
		if err := f(arg); err != nil {
			return sdk.Rejected("blocked")
		}
		return sdk.Repaired().SetValue([]byte("THROUGH"))
	}
	switch verb {
	case "hang":
		time.Sleep(time.Hour)
	case "spin":
		for i := 0; ; i++ {
			if i < 0 {
				break
			}
		}
	case "exit":
		os.Exit(7)
	case "panic":
		panic("the card is 4111111111111111")
	case "big":
		return sdk.Repaired().SetValue(make([]byte, 10<<20))
	case "huge":
		return sdk.Repaired().SetValue(make([]byte, 1<<30))
	case "clock":
		return sdk.Repaired().SetValue([]byte(time.Now().Format(time.RFC3339Nano)))
	case "order":
		m := map[int]int{}
		for i := range 100 {
			m[i] = i
		}
		return sdk.Repaired().SetValue(fmt.Append(nil, keys(m)))
	case "memory-of-calls":
		calls++
		return sdk.Repaired().SetValue(fmt.Append(nil, calls))
	case "stdout-flood":
		for {
			fmt.Println(strings.Repeat("chatter ", 1000))
		}
	case "stderr-flood":
		line := []byte(strings.Repeat("x", 1<<16))
		for {
			syscall.Write(2, line)
		}
	case "value":
		return sdk.Repaired().SetValue([]byte(arg))
	case "key":
		return sdk.Repaired().SetKey([]byte(arg))
	case "header":
		return sdk.Repaired().SetHeaders([]sdk.Header{{Name: arg, Value: []byte("x")}})
	case "delete":
		return sdk.Repaired().SetValue(nil)
	case "broker":
		return sdk.Repaired().SetValue(fmt.Append(nil, brokerStreams.Load()))
	case "where":
		var u syscall.Utsname
		dir := make([]byte, 256)
		n, err := syscall.Getcwd(dir)
		if err == nil {
			err = syscall.Uname(&u)
		}
		if err != nil {
			return sdk.Rejected(err.Error())
		}
		host := ""
		for _, c := range u.Nodename {
			if c == 0 {
				break
			}
			host += string(rune(c))
		}
		return sdk.Repaired().SetValue([]byte(host + " in " + strings.TrimRight(string(dir[:n]), "\x00")))
	case "year":
		return sdk.Repaired().SetValue([]byte(time.Now().UTC().Format("2006")))
	case "late-lie": // honest for its first 40 records of the kind
		if calls++; calls > 40 {
			return sdk.Repaired().SetValue(fmt.Append(nil, calls))
		}
	case "computes-on": // it answers, and goes on for itself
		for range 4 {
			go func() {
				for {
				}
			}()
		}
	case "spends": // so much of a processor's time, which is its own to spend while it is asked
		d, _ := time.ParseDuration(arg)
		spent := func() time.Duration {
			var used syscall.Timespec
			syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 2, uintptr(unsafe.Pointer(&used)), 0)
			return time.Duration(used.Nano())
		}
		for from := spent(); spent()-from < d; {
		}
	case "says-much": // and ends, to begin again with nothing said
		for range 900 {
			fmt.Fprintln(os.Stderr, strings.Repeat("many words ", 93))
		}
		os.Exit(8)
	case "stdio":
		floodStdio(arg)
		time.Sleep(time.Hour)
	case "silent rejection":
		return sdk.Rejected("")
	case "raw-stdout":
		_, _ = syscall.Write(1, []byte("chatter\n"))
	case "random":
		b := make([]byte, 8)
		_, _ = rand.Read(b)
		return sdk.Repaired().SetValue([]byte(fmt.Sprintf("%x", b)))
	case "stdout":
		for range 100 {
			fmt.Println(strings.Repeat("chatter ", 1000))
		}
	case "stderr":
		line := strings.Repeat("x", 1<<20)
		for range 10 {
			syscall.Write(2, []byte(line))
		}
	case "say":
		fmt.Fprintln(os.Stderr, "working on", arg)
		syscall.Write(2, []byte("again "+arg+" \x1b[31m\n"))
	case "note":
		return sdk.Repaired().SetValue([]byte("fixed")).Note("saw " + arg)
	case "reason":
		return sdk.Rejected("cannot do " + arg)
	case "same":
		return sdk.Unchanged()
	case "env":
		return sdk.Repaired().SetValue([]byte(strings.Join(os.Environ(), "\n")))
	}
	return sdk.Repaired().SetValue([]byte("fixed"))
}

var calls int

func keys(m map[int]int) (out []int) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// attacks return nil when they got through.
var attacks = map[string]func(arg string) error{
	"tcp":  func(a string) error { return dial("tcp", a) },
	"udp":  func(a string) error { return dial("udp", a) },
	"unix": func(a string) error { return dial("unix", a) },
	"listen": func(string) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			l.Close()
		}
		return err
	},
	"netlink": func(string) error {
		_, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, 0)
		return err
	},
	"read":  func(a string) error { _, err := os.ReadFile(a); return err },
	"list":  func(a string) error { _, err := os.ReadDir(a); return err },
	"write": func(a string) error { return os.WriteFile(a, []byte("x"), 0o600) },
	"fill": func(string) error {
		for i := range 100 {
			f, err := os.Create(os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/f" + strconv.Itoa(i))
			if err != nil {
				return err
			}
			_, err = f.WriteString("x")
			f.Close() // also after a refusal: a file left open here is no file of the host, and "fds" may be next
			if err != nil {
				return err
			}
		}
		return nil
	},
	"fds": func(string) error {
		for fd := 5; fd < 64; fd++ {
			var st syscall.Stat_t
			if syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
				return nil
			}
		}
		return syscall.EBADF
	},
	"exec": func(string) error { return exec.Command("/bin/sh", "-c", "true").Run() },
	"fork": func(string) error {
		pid, _, e := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
		if e != 0 {
			return e
		}
		if pid == 0 {
			syscall.RawSyscall(syscall.SYS_NANOSLEEP, 0, 0, 0)
			syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
		}
		return nil
	},
	"bomb": func(string) error {
		n := 0
		for range 3000 {
			pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
			if e == 0 && pid == 0 {
				for {
					syscall.RawSyscall(syscall.SYS_PAUSE, 0, 0, 0)
				}
			}
			if e == 0 {
				n++
			}
		}
		if n == 0 {
			return syscall.EPERM
		}
		return nil
	},
	"threads": func(string) error {
		var wg sync.WaitGroup
		for range 3000 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ts := syscall.Timespec{Sec: 5}
				syscall.Nanosleep(&ts, nil)
			}()
		}
		wg.Wait()
		return nil
	},
	"kill": func(a string) error {
		pid, _ := strconv.Atoi(a)
		return syscall.Kill(pid, 0)
	},
	"ptrace": func(a string) error {
		pid, _ := strconv.Atoi(a)
		return syscall.PtraceAttach(pid)
	},
	"memory": func(string) error {
		var all [][]byte
		for range 4096 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
		runtime.KeepAlive(all)
		return nil
	},
	"shared": func(string) error {
		_, err := syscall.Mmap(-1, 0, 1<<30, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
		return err
	},
	"unshare": func(string) error { return syscall.Unshare(syscall.CLONE_NEWUSER) },
	"mount":   func(string) error { return syscall.Mount("none", "/", "tmpfs", 0, "") },
	"symlink": func(string) error { return os.Symlink("/etc/passwd", os.Getenv("PLUGIN_UNIX_SOCKET_DIR")+"/l") },
	"setuid": func(string) error {
		_, _, e := syscall.RawSyscall(syscall.SYS_SETUID, 0, 0, 0)
		if e != 0 {
			return e
		}
		return nil
	},
}

func dial(network, addr string) error {
	c, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("x"))
	return err
}
