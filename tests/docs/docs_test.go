package docs

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const root = "../.."

// block is a fenced block of commands.
type block struct {
	line     int
	exit     int
	until    string
	skip     string
	commands string
	captures map[string]*regexp.Regexp
}

var (
	fence   = regexp.MustCompile("^```sh( .*)?$")
	capture = regexp.MustCompile(`^<!-- capture ([A-Z_]+): (.*) -->$`)
)

func blocks(t *testing.T, page string) (out []*block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var now *block
	for i, line := range strings.Split(string(text), "\n") {
		if m := capture.FindStringSubmatch(line); m != nil && len(out) > 0 {
			out[len(out)-1].captures[m[1]] = regexp.MustCompile(m[2])
			continue
		}
		switch m := fence.FindStringSubmatch(line); {
		case now == nil && m != nil:
			now = &block{line: i + 1, captures: map[string]*regexp.Regexp{}}
			for _, word := range strings.Fields(m[1]) {
				key, value, _ := strings.Cut(word, "=")
				switch key {
				case "exit":
					if now.exit, err = strconv.Atoi(value); err != nil {
						t.Fatalf("%s:%d: %v", page, i+1, err)
					}
				case "until":
					now.until = strings.ReplaceAll(value, "_", " ")
				case "skip":
					now.skip = value
				default:
					t.Fatalf("%s:%d: unknown word %q", page, i+1, word)
				}
			}
		case now != nil && line == "```":
			out, now = append(out, now), nil
		case now != nil:
			now.commands += line + "\n"
		}
	}
	return out
}

// shell is one page's terminal.
type shell struct {
	t        *testing.T
	page     string
	dir      string // of what it keeps
	demo     string // instead of .demo
	captured map[string]string
	running  []*running
}

// running is a block that stays open.
type running struct {
	b    *block
	cmd  *exec.Cmd
	out  *watched
	done chan error
}

// watched keeps what is written and tells about it.
type watched struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.buf.Write(p)
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// command is bash over a block, with the environment that the blocks before it left.
func (s *shell) command(ctx context.Context, b *block) *exec.Cmd {
	state := filepath.Join(s.dir, "environment")
	var script strings.Builder
	script.WriteString("set -eu -o pipefail\n[ -f '" + state + "' ] && . '" + state + "'\ntrap 'export -p >\"" + state + "\"' EXIT\n")
	for name, value := range s.captured {
		script.WriteString("export " + name + "='" + value + "'\n")
	}
	for _, line := range strings.Split(b.commands, "\n") {
		if name, _, ok := strings.Cut(line, "="); ok && s.captured[name] != "" {
			continue
		}
		script.WriteString(line + "\n")
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", regexp.MustCompile(`\.demo\b`).ReplaceAllLiteralString(script.String(), s.demo))
	cmd.Dir, cmd.Env = root, append(os.Environ(), "DEMO_DIR="+s.demo)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func (s *shell) run(b *block) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 60*time.Second)
	defer cancel()
	cmd := s.command(ctx, b)
	out, err := cmd.CombinedOutput()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		s.t.Fatalf("%s:%d: %v", s.page, b.line, err)
	}
	if code != b.exit {
		s.t.Fatalf("%s:%d: exit code %d instead of %d\n%s\n%s", s.page, b.line, code, b.exit, b.commands, out)
	}
	s.capture(b, string(out))
}

func (s *shell) capture(b *block, out string) {
	s.t.Helper()
	for name, re := range b.captures {
		m := re.FindStringSubmatch(out)
		if len(m) != 2 {
			s.t.Fatalf("%s:%d: %s is not in the output\n%s", s.page, b.line, re, out)
		}
		s.captured[name] = m[1]
	}
}

// start runs a block that stays open, and returns when it has printed what the page waits for.
func (s *shell) start(b *block) {
	s.t.Helper()
	r := &running{b: b, out: &watched{changed: make(chan struct{}, 1)}, done: make(chan error, 1)}
	r.cmd = s.command(s.t.Context(), b)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	if err := r.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	s.running = append(s.running, r)
	deadline := time.After(3 * time.Minute) // the first one builds
	for !strings.Contains(r.out.String(), b.until) {
		select {
		case <-r.out.changed:
		case err := <-r.done:
			r.done <- err
			s.t.Fatalf("%s:%d: it ended (%v) before it said %q\n%s", s.page, b.line, err, b.until, r.out)
		case <-deadline:
			s.t.Fatalf("%s:%d: it did not say %q\n%s", s.page, b.line, b.until, r.out)
		}
	}
	s.capture(b, r.out.String())
}

// end interrupts what stays open, as Ctrl-C does.
func (s *shell) end() {
	for _, r := range s.running {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT) // its whole group, like a terminal
		select {
		case <-r.done:
		case <-time.After(30 * time.Second):
			_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
			s.t.Errorf("%s:%d: it does not end on an interrupt\n%s", s.page, r.b.line, r.out)
		}
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	more, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(more) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	return append([]string{filepath.Join(root, "README.md")}, more...)
}

func TestEveryCommandOfTheDocumentationWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the demo")
	}
	ran := 0
	for _, page := range pages(t) {
		list := blocks(t, page)
		if !slices.ContainsFunc(list, func(b *block) bool { return b.skip == "" }) {
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) {
			dir := t.TempDir()
			s := &shell{t: t, page: page, dir: dir, demo: filepath.Join(dir, "demo"), captured: map[string]string{}}
			defer s.end()
			for _, b := range list {
				switch {
				case b.skip != "":
					t.Logf("%s:%d: skipped: %s", page, b.line, b.skip)
					continue
				case b.until != "":
					s.start(b)
				default:
					s.run(b)
				}
				ran++
			}
		})
	}
	if ran < 10 {
		t.Errorf("only %d blocks were run", ran)
	}
}

var link = regexp.MustCompile(`\]\(([^)#: ]+)(#[^)]*)?\)|src="([^":]+)"`)

func TestLinksLeadSomewhere(t *testing.T) {
	all := append(pages(t), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "CHANGELOG.md"))
	for _, sub := range []string{"reference", "adr"} {
		more, err := filepath.Glob(filepath.Join(root, "docs", sub, "*.md"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no pages in docs/%s: %v", sub, err)
		}
		all = append(all, more...)
	}
	for _, page := range all {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := m[1] + m[3]
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); target != "" && err != nil {
				t.Errorf("%s: %s is not there", page, target)
			}
		}
	}
}

func TestThePictureIsAStaticImage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "demo.svg"))
	if err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(bytes.NewReader(text))
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		el, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		if slices.Contains([]string{"script", "foreignObject", "image", "a", "use", "style"}, el.Name.Local) {
			t.Errorf("it holds <%s>", el.Name.Local)
		}
		for _, a := range el.Attr {
			if strings.HasPrefix(strings.ToLower(a.Name.Local), "on") || strings.HasSuffix(a.Name.Local, "href") {
				t.Errorf("<%s> has %s", el.Name.Local, a.Name.Local)
			}
		}
	}
	for _, w := range []string{"$ make demo", "lost ", "quarantine groups", "redrive approve"} {
		if !bytes.Contains(text, []byte(w)) {
			t.Errorf("the picture does not show %q", w)
		}
	}
}
