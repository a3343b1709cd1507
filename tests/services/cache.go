package services

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

//go:embed files
var files embed.FS

// cached returns a folder under the user's cache that make has filled once, for all processes.
func cached(name string, make func(dir string) error) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	base = filepath.Join(base, "reprieve-test")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(base, name)
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	half, err := os.MkdirTemp(base, name+".half-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(half)
	if err := make(half); err != nil {
		return "", err
	}
	return dir, os.Rename(half, dir)
}

// maven runs Maven quietly.
func maven(args ...string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("it is downloaded by Maven: %w", err)
	}
	return run(exec.Command(mvn, append([]string{"-q", "-B", "--no-transfer-progress"}, args...)...))
}

// run runs a command and tells what it printed when it fails.
func run(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		text := out.String()
		if len(text) > 4000 {
			text = text[len(text)-4000:]
		}
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, text)
	}
	return nil
}

// java finds a Java of at least a version: the newest installed one.
func java(least int) (string, error) {
	type found struct {
		path    string
		version int
	}
	var all []found
	dirs, _ := filepath.Glob("/usr/lib/jvm/*")
	if home := os.Getenv("JAVA_HOME"); home != "" {
		dirs = append(dirs, home)
	}
	if path, err := exec.LookPath("java"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(filepath.Dir(real)))
		}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, "bin", "java")
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if v := javaVersion(dir); v >= least {
			all = append(all, found{path, v})
		}
	}
	if len(all) == 0 {
		return "", fmt.Errorf("it needs Java %d or newer (searched /usr/lib/jvm, JAVA_HOME and the path)", least)
	}
	return slices.MaxFunc(all, func(a, b found) int { return a.version - b.version }).path, nil
}

// javaVersion reads a Java's release file; 0 is unknown.
func javaVersion(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, "release"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, `JAVA_VERSION="`); ok {
			major, _, _ := strings.Cut(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), `"`)), ".")
			n, _ := strconv.Atoi(major)
			return n
		}
	}
	return 0
}
