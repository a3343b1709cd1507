//go:build linux

// Command vm boots a small virtual machine whose control groups are of version 2 with all their controllers, and runs the tests of the
// sandbox and the hostile suite in it: as root in the topmost group, as root in a group that was delegated, and as another user in one.
//
//	go run ./tests/vm -kernel FILE
//
// It needs qemu-system-x86_64 and a kernel of Linux 5.13 or newer as one file (of Debian: linux-image-cloud-amd64, unpacked with dpkg -x;
// -kernel may be left out where /boot has one). Nothing else: the machine's only files are this program, which is its init, and the
// tests. The processor is emulated, so that it is the same everywhere; -accel kvm is faster where it works. Where the two are missing it
// says so and exits 0 with "skipped"; 1: a test failed.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if os.Getpid() == 1 {
		guest()
	}
	kernel := flag.String("kernel", "", "the kernel to boot; empty: the newest of /boot")
	accel := flag.String("accel", "tcg,thread=multi", "how qemu runs the processor: tcg,thread=multi or kvm")
	limit := flag.Duration("limit", time.Hour, "most time that the machine may take")
	only := flag.String("run", "", "only tests whose names match")
	flag.Parse()
	switch err := run(*kernel, *accel, *only, *limit); {
	case errors.As(err, new(missing)):
		fmt.Println("vm: skipped:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

// missing is what this machine does not have.
type missing string

func (m missing) Error() string { return string(m) }

// plan is what the machine is told to do.
type plan struct {
	Runs []test `json:"runs"`
}

// test is one test program, run from its folder in some group.
type test struct {
	Name  string   `json:"name"`
	Args  []string `json:"args"`
	Dir   string   `json:"dir"`
	Group string   `json:"group"` // "", the topmost one, or one that is delegated to the user
	UID   int      `json:"uid"`
}

func run(kernel, accel, only string, limit time.Duration) error {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return missing("there is no qemu-system-x86_64 (Debian: apt-get install --no-install-recommends qemu-system-x86)")
	}
	if kernel == "" {
		found, _ := filepath.Glob("/boot/vmlinuz-*")
		if len(found) == 0 {
			return missing("there is no kernel in /boot: name one with -kernel")
		}
		kernel = slices.Max(found)
	}
	tmp, err := os.MkdirTemp("", "reprieve-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	image := filepath.Join(tmp, "initramfs")
	if err := pack(tmp, image, only); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return boot(ctx, qemu, kernel, accel, image)
}

// programs are built static: the machine has no libraries.
var programs = []struct {
	name  string
	build []string
}{
	{"init", []string{"build", "./tests/vm"}},
	{"sandbox.test", []string{"test", "-c", "./plugins/sandbox"}},
	{"hostile.test", []string{"test", "-c", "./tests/conformance/plugin"}},
	{"hostile", []string{"build", "./tests/conformance/plugin/hostile"}},
}

// attacks are the tests of the hostile suite that are about what a plugin may take and reach. Others build or pack something, for which
// the machine has no tools, or do not follow from its kernel.
const attacks = "EveryAttack|EveryEscape|Floods|AbstractNamespace|C53|KillOfTheHost|TheLevelOfThisMachine|AnotherTimeAndAnotherMachine"

// pack builds the programs and writes the machine's files.
func pack(tmp, image, only string) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	a := &archive{}
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "tests"} {
		a.add(dir, 0o040755, nil)
	}
	for _, p := range programs {
		file := filepath.Join(tmp, p.name)
		cmd := exec.Command("go", append([]string{p.build[0], "-o", file}, p.build[1:]...)...)
		cmd.Dir, cmd.Env = strings.TrimSpace(string(root)), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		to := "tests/" + p.name
		if p.name == "init" {
			to = p.name
		}
		a.add(to, 0o100755, text)
	}
	var todo plan
	for _, where := range []struct {
		name, group string
		uid         int
	}{{"root, topmost group", "", 0}, {"root, delegated group", "worker", 0}, {"user, delegated group", "users", 1000}} {
		for program, tests := range map[string]string{"sandbox.test": ".", "hostile.test": attacks} {
			args := []string{"/tests/" + program, "-test.v", "-test.short", "-test.timeout=30m", "-test.run=" + cmp.Or(only, tests)}
			todo.Runs = append(todo.Runs, test{Name: program + ", " + where.name, Args: args, Dir: "/tests", Group: where.group, UID: where.uid})
		}
	}
	slices.SortStableFunc(todo.Runs, func(a, b test) int { return -cmp.Compare(a.Args[0], b.Args[0]) }) // the quick ones first
	text, err := json.Marshal(todo)
	if err != nil {
		return err
	}
	a.add("plan.json", 0o100644, text)
	return os.WriteFile(image, a.end(), 0o600)
}

// archive is a cpio archive of the form that Linux unpacks at its start (buffer-format.rst of its documentation: newc).
type archive struct {
	b bytes.Buffer
	n int
}

func (a *archive) add(name string, mode uint32, content []byte) {
	a.n++
	fmt.Fprintf(&a.b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.n, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.b.WriteString(name + "\x00")
	a.pad()
	a.b.Write(content)
	a.pad()
}

func (a *archive) pad() {
	for a.b.Len()%4 != 0 {
		a.b.WriteByte(0)
	}
}

func (a *archive) end() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.b.Bytes()
}

// verdict begins the line by which the machine says how it went.
const verdict = "vm: all tests: "

// boot runs the machine and shows what it says.
func boot(ctx context.Context, qemu, kernel, accel, image string) error {
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio", "-monitor", "none", "-net", "none",
		"-accel", accel, "-cpu", "max", "-smp", "2", "-m", "2048", "-kernel", kernel, "-initrd", image, "-append", "console=ttyS0 quiet panic=-1 rdinit=/init")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the machine ends with the thread that started it
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	said := ""
	for sc := bufio.NewScanner(out); sc.Scan(); {
		fmt.Println(sc.Text())
		if rest, ok := strings.CutPrefix(strings.TrimSpace(sc.Text()), verdict); ok {
			said = rest
		}
	}
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	switch {
	case said == "pass":
		return nil
	case said != "":
		return errors.New("tests failed: " + said)
	case ctx.Err() != nil:
		return errors.New("the machine did not come to an end in time")
	}
	return fmt.Errorf("the machine ended without a verdict: %w\n%s", err, errs.String())
}
