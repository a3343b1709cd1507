package services

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// s3Module is the gateway that serves the S3 API from a folder; it checks signatures as S3 does.
const s3Module = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// S3Server serves the S3 API.
type S3Server struct {
	Endpoint, Region, Bucket string
	AccessKey, SecretKey     string

	dir string
}

// S3 starts a server with one empty bucket for this test. The first time it is built, in 1 to 3 minutes. It is skipped by name where it
// cannot be had.
func S3(t TB) *S3Server {
	t.Helper()
	s, p, err := startS3()
	if err != nil {
		missing(t, "S3 server", err, false)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Logf("stop the S3 server: %v", err)
		}
	})
	return s
}

func startS3() (*S3Server, *process, error) {
	bin, err := cached("versitygw-1.8.0", func(dir string) error {
		gobin, err := exec.LookPath("go")
		if err != nil {
			return fmt.Errorf("it is built by go: %w", err)
		}
		cmd := exec.Command(gobin, "install", "-ldflags=-s -w", s3Module)
		cmd.Dir = dir // outside of this module: the gateway has versions of its own
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-trimpath")
		return run(cmd)
	})
	if err != nil {
		return nil, nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "reprieve-s3-")
	if err != nil {
		return nil, nil, err
	}
	s := &S3Server{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", port), Region: "us-east-1", Bucket: "custody", AccessKey: "reprieve", dir: filepath.Join(dir, "objects")}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails
	s.SecretKey = hex.EncodeToString(secret)
	for _, sub := range []string{"objects/" + s.Bucket, "about"} { // a folder of the first level is a bucket
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, nil, err
		}
	}
	p, err := start(spec{name: "s3", dir: dir, remove: true, signal: "TERM",
		env: []string{"HOME=" + dir, "ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey},
		args: []string{filepath.Join(bin, "versitygw"), "--port", strings.TrimPrefix(s.Endpoint, "http://"), "--region", s.Region, "--health", "/health", "--quiet",
			"posix", "--sidecar", filepath.Join(dir, "about"), s.dir}})
	if err != nil {
		return nil, nil, err
	}
	if err := p.await(30*time.Second, s.ready); err != nil {
		_ = p.stop()
		return nil, nil, err
	}
	return s, p, nil
}

func (s *S3Server) ready() bool {
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(s.Endpoint, "http://"), time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	r, err := http.Get(s.Endpoint + "/health")
	if err != nil {
		return false
	}
	_ = r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// URL is the bucket as gocloud.dev/blob opens it.
func (s *S3Server) URL() string {
	q := url.Values{"endpoint": {s.Endpoint}, "region": {s.Region}, "use_path_style": {"true"}, "disable_https": {"true"}}
	return "s3://" + s.Bucket + "?" + q.Encode()
}

// Environment are the variables by which clients find the credentials.
func (s *S3Server) Environment() map[string]string {
	return map[string]string{"AWS_ACCESS_KEY_ID": s.AccessKey, "AWS_SECRET_ACCESS_KEY": s.SecretKey, "AWS_EC2_METADATA_DISABLED": "true"}
}

// File is where the server keeps an object, for tests that damage it.
func (s *S3Server) File(object string) string {
	return filepath.Join(s.dir, s.Bucket, filepath.FromSlash(object))
}
