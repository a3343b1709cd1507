package services

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server under a small shell that ends it when our end of its standard input closes: so it does not outlive
// us, even when we are killed.
type process struct {
	name   string
	pid    int
	log    string
	stdin  io.Closer
	cmd    *exec.Cmd
	exited chan struct{}
	status string
}

// supervisor runs its arguments, says their pid and their exit status, and ends them when its input ends. REMOVE is a folder
// that goes with them.
const supervisor = `
exec 3<&0
"$@" </dev/null >>"$LOG" 2>&1 3<&- &
p=$!
echo $p
{
  cat <&3 >/dev/null
  kill -$SIGNAL $p 2>/dev/null
  n=0
  while kill -0 $p 2>/dev/null && [ $n -lt 300 ]; do sleep 0.05; n=$((n+1)); done
  kill -KILL $p 2>/dev/null
} &
wait $p
( echo "exit $?" ) 2>/dev/null # in a shell of its own: whoever reads it may be gone
exec 3<&-
wait
[ -z "$REMOVE" ] || rm -rf "$REMOVE"
`

type spec struct {
	name   string
	args   []string
	dir    string // where it runs, and where its log is
	remove bool   // dir goes with it
	signal string // TERM, INT
	as     *syscall.Credential
	env    []string
}

func start(s spec) (*process, error) {
	p := &process{name: s.name, log: filepath.Join(s.dir, "log"), exited: make(chan struct{})}
	p.cmd = exec.Command("/bin/sh", append([]string{"-c", supervisor, s.name}, s.args...)...)
	p.cmd.Dir = s.dir
	remove := ""
	if s.remove {
		remove = s.dir
	}
	p.cmd.Env = append(os.Environ(), append(s.env, "LOG="+p.log, "SIGNAL="+s.signal, "REMOVE="+remove)...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.as}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	p.stdin = in
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		_ = in.Close()
		return nil, fmt.Errorf("%s did not start: %v", s.name, lines.Err())
	}
	if p.pid, err = strconv.Atoi(lines.Text()); err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("%s did not start: %q", s.name, lines.Text())
	}
	go func() {
		for lines.Scan() {
			p.status = lines.Text()
			close(p.exited) // the only line after the pid
			break
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	return p, nil
}

// await waits until ready is true, and fails with the end of the log when the process ends or takes too long.
func (p *process) await(patience time.Duration, ready func() bool) error {
	for end := time.Now().Add(patience); !ready(); {
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended at once (%s):\n%s", p.name, p.status, p.tail())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is not ready after %v:\n%s", p.name, patience, p.tail())
		}
	}
	return nil
}

// logged tells whether the log has a line with text, from an offset on.
func (p *process) logged(text string, from int64) bool {
	f, err := os.Open(p.log)
	if err != nil {
		return false
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return false
	}
	b, _ := io.ReadAll(f)
	return strings.Contains(string(b), text)
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(b) > 4000 {
		b = b[len(b)-4000:]
	}
	return string(b)
}

// stop ends the process in an orderly way and waits.
func (p *process) stop() error {
	_ = p.stdin.Close()
	err := p.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil // of the shell: what the server's own exit was does not matter
	}
	return err
}

// kill ends the process as a crash does and waits until it is gone.
func (p *process) kill() error {
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited // the pid is gone, and with it the port: one that is only closed may still answer
	return p.stop()
}

// freePort finds a port below the range from which clients get theirs: one of those may be taken between choice and use.
func freePort() (int, error) {
	for range 200 {
		n := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n))
		if err == nil {
			_ = l.Close()
			return n, nil
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}
