package services

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// RegistryOptions says how to start a registry. With a user it wants basic authentication.
type RegistryOptions struct{ User, Password string }

// RegistryServer is an Apicurio registry, which speaks the Confluent API.
type RegistryServer struct {
	URL string // base of the Confluent API

	p *process
}

const registryVersion = "3.3.3"

// StartRegistry starts a registry that keeps everything in memory and judges changes BACKWARD: 4 to 7 s, and a download of
// 160 MB the first time.
func StartRegistry(o RegistryOptions) (*RegistryServer, error) {
	vm, err := java(21)
	if err != nil {
		return nil, err
	}
	home, err := cached("apicurio-"+registryVersion, downloadRegistry)
	if err != nil {
		return nil, fmt.Errorf("download the registry: %w", err)
	}
	jar, err := findFile(home, "quarkus-run.jar")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	management, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "reprieve-registry-")
	if err != nil {
		return nil, err
	}
	args := []string{vm, "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
		fmt.Sprintf("-Dquarkus.http.port=%d", port), "-Dquarkus.management.host=127.0.0.1", // else it listens everywhere
		fmt.Sprintf("-Dquarkus.management.port=%d", management), "-Dquarkus.log.level=WARN"}
	if o.User != "" {
		args = append(args, "-Dquarkus.http.auth.basic=true", "-Dquarkus.security.users.embedded.plain-text=true",
			"-Dquarkus.security.users.embedded.enabled=true",
			"-Dquarkus.security.users.embedded.users."+o.User+"="+o.Password,
			"-Dquarkus.http.auth.permission.p.paths=/apis/*", "-Dquarkus.http.auth.permission.p.policy=authenticated")
	}
	s := &RegistryServer{URL: fmt.Sprintf("http://127.0.0.1:%d/apis/ccompat/v7", port)}
	if s.p, err = start(spec{name: "registry", dir: dir, remove: true, signal: "TERM", args: append(args, "-jar", jar)}); err != nil {
		return nil, err
	}
	health := fmt.Sprintf("http://127.0.0.1:%d/health/ready", management)
	err = s.p.await(time.Minute, func() bool {
		r, err := http.Get(health)
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	if err == nil {
		err = s.setCompatibility(o)
	}
	if err != nil {
		_ = s.p.stop()
		return nil, err
	}
	return s, nil
}

// setCompatibility makes it judge as the registries of production do: its own default is to judge nothing.
func (s *RegistryServer) setCompatibility(o RegistryOptions) error {
	req, err := http.NewRequest(http.MethodPut, s.URL+"/config", bytes.NewBufferString(`{"compatibility":"BACKWARD"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if o.User != "" {
		req.SetBasicAuth(o.User, o.Password)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("PUT /config: %s", r.Status)
	}
	return nil
}

// Stop ends it.
func (s *RegistryServer) Stop() error { return s.p.stop() }

func downloadRegistry(dir string) error {
	const artifact = "io.apicurio:apicurio-registry-app:" + registryVersion + ":tar.gz:all"
	if err := maven("dependency:copy", "-Dartifact="+artifact, "-DoutputDirectory="+dir); err != nil {
		return err
	}
	archives, _ := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if len(archives) != 1 {
		return fmt.Errorf("%d archives came, want one", len(archives))
	}
	if err := run(exec.Command("tar", "xzf", archives[0], "-C", dir)); err != nil {
		return err
	}
	return os.Remove(archives[0])
}

func findFile(dir, name string) (path string, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(p, string(filepath.Separator)+name) {
			path = p
			return fs.SkipAll
		}
		return err
	})
	if err == nil && path == "" {
		err = fmt.Errorf("%s has no %s", dir, name)
	}
	return path, err
}
