package plugins_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/seal"
)

const about = "apiVersion: reprieve/v1\nname: acme/x\nversion: 1.0.0\ndoc: Does.\nartifacts: [{os: linux, arch: amd64, path: x}]\n"

// entry is one entry of an archive under test.
type entry struct {
	name, text string
	kind       byte
}

func archive(t *testing.T, zip bool, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o755, Size: int64(len(e.text))}
		if e.kind == tar.TypeSymlink || e.kind == tar.TypeLink {
			h.Linkname, h.Size = e.text, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(e.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !zip {
		return out.Bytes()
	}
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	if _, err := g.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

func good(t *testing.T) []byte {
	return archive(t, true, entry{"x-1.0.0/", "", tar.TypeDir}, entry{"x-1.0.0/plugin.yaml", about, tar.TypeReg}, entry{"x-1.0.0/x", "program", tar.TypeReg})
}

func open(t *testing.T, s plugins.Source) (string, error) {
	t.Helper()
	s.Client = http.DefaultClient
	dir, done, err := s.Open(context.Background())
	if err == nil {
		t.Cleanup(done)
	}
	return dir, err
}

// holds tells whether the folder has the plugin.
func holds(t *testing.T, dir string) {
	t.Helper()
	for name, want := range map[string]string{"plugin.yaml": about, "x": "program"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

func TestAPluginIsInstalledFromAFolderAndAnArchive(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"plugin.yaml": about, "x": "program"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if dir, err := open(t, plugins.Source{Place: folder}); err != nil || dir != folder {
		t.Fatal(dir, err)
	}
	for name, b := range map[string][]byte{"x.tar.gz": good(t), "x.tar": archive(t, false, entry{"plugin.yaml", about, tar.TypeReg}, entry{"x", "program", tar.TypeReg})} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		dir, err := open(t, plugins.Source{Place: file, Digest: seal.SHA256(b)})
		if err != nil {
			t.Fatal(name, err)
		}
		holds(t, dir)
		_, err = open(t, plugins.Source{Place: file, Digest: seal.SHA256([]byte("other"))})
		if pipeline.CodeOf(err) != pipeline.CodePluginLock || strings.Count(err.Error(), "sha256:") != 2 {
			t.Errorf("%s with another digest: %v", name, err)
		}
	}
}

func TestAnArchiveThatIsNoneIsRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty": {}, "no archive": []byte("hello"), "nothing in it": archive(t, true), "no descriptor": archive(t, true, entry{"x", "program", tar.TypeReg}),
		"outside":         archive(t, true, entry{"../plugin.yaml", about, tar.TypeReg}),
		"absolute":        archive(t, true, entry{"/tmp/plugin.yaml", about, tar.TypeReg}),
		"a link":          archive(t, true, entry{"plugin.yaml", "/etc/passwd", tar.TypeSymlink}),
		"a hard link":     archive(t, true, entry{"x", "program", tar.TypeReg}, entry{"plugin.yaml", "x", tar.TypeLink}),
		"a device":        archive(t, true, entry{"plugin.yaml", "", tar.TypeChar}),
		"twice":           archive(t, true, entry{"plugin.yaml", about, tar.TypeReg}, entry{"plugin.yaml", about, tar.TypeReg}),
		"cut":             good(t)[:60],
		"two descriptors": archive(t, true, entry{"a/plugin.yaml", about, tar.TypeReg}, entry{"b/plugin.yaml", about, tar.TypeReg}),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.tar.gz")
			if err := os.WriteFile(file, b, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := open(t, plugins.Source{Place: file})
			if c := pipeline.CodeOf(err); c != pipeline.CodePluginRefused && c != pipeline.CodePluginUnknown {
				t.Error(err)
			}
		})
	}
}

// registry is an OCI registry that wants a token, as public ones do.
func registry(t *testing.T, blobs map[string][]byte, manifests map[string][]byte) *httptest.Server {
	t.Helper()
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			_, _ = w.Write([]byte(`{"token":"let-me-in"}`))
			return
		}
		if r.Header.Get("Authorization") != "Bearer let-me-in" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.URL+`/token",service="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		digest := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		b, ok := blobs[digest]
		if strings.Contains(r.URL.Path, "/manifests/") {
			b, ok = manifests[digest]
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s
}

type layer struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func manifest(t *testing.T, layers ...layer) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"schemaVersion": 2, "layers": layers})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAPluginIsInstalledOverTheNetworkByItsDigestOnly(t *testing.T) {
	b := good(t)
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/x.tar.gz":
			_, _ = w.Write(b)
		case "/moved":
			http.Redirect(w, r, "/x.tar.gz", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://192.0.2.1/x.tar.gz", http.StatusFound)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer files.Close()
	for _, path := range []string{"/x.tar.gz", "/moved"} {
		dir, err := open(t, plugins.Source{Place: files.URL + path, Digest: seal.SHA256(b), Online: true})
		if err != nil {
			t.Fatal(err)
		}
		holds(t, dir)
	}
	for name, c := range map[string]struct {
		s    plugins.Source
		code pipeline.Code
		text string
	}{
		"offline":          {plugins.Source{Place: files.URL + "/x.tar.gz", Digest: seal.SHA256(b)}, pipeline.CodePluginRefused, "offline"},
		"no digest":        {plugins.Source{Place: files.URL + "/x.tar.gz", Online: true}, pipeline.CodePluginRefused, "by its digest only"},
		"changed":          {plugins.Source{Place: files.URL + "/x.tar.gz", Digest: seal.SHA256([]byte("old")), Online: true}, pipeline.CodePluginLock, "has changed"},
		"not there":        {plugins.Source{Place: files.URL + "/y", Digest: seal.SHA256(b), Online: true}, pipeline.CodePluginUnknown, "404"},
		"plain, elsewhere": {plugins.Source{Place: "http://192.0.2.1/x.tar.gz", Digest: seal.SHA256(b), Online: true}, pipeline.CodePluginRefused, "http://"},
		"led away":         {plugins.Source{Place: files.URL + "/away", Digest: seal.SHA256(b), Online: true}, pipeline.CodePluginUnknown, "http://"},
		"another protocol": {plugins.Source{Place: "ftp://127.0.0.1/x.tar.gz", Digest: seal.SHA256(b), Online: true}, pipeline.CodePluginRefused, "ftp://"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, c.s)
			if pipeline.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Error(err)
			}
		})
	}
}

func TestAPluginIsInstalledFromARegistry(t *testing.T) {
	b := good(t)
	whole := manifest(t, layer{"application/vnd.oci.image.layer.v1.tar+gzip", seal.SHA256(b), len(b), nil})
	single := manifest(t, layer{"text/yaml", seal.SHA256([]byte(about)), len(about), map[string]string{"org.opencontainers.image.title": "plugin.yaml"}},
		layer{"application/octet-stream", seal.SHA256([]byte("program")), 7, map[string]string{"org.opencontainers.image.title": "x"}})
	lying := manifest(t, layer{"application/vnd.oci.image.layer.v1.tar+gzip", seal.SHA256([]byte("other")), len(b), nil})
	outside := manifest(t, layer{"text/yaml", seal.SHA256([]byte(about)), len(about), map[string]string{"org.opencontainers.image.title": "../plugin.yaml"}},
		layer{"application/octet-stream", seal.SHA256([]byte("program")), 7, map[string]string{"org.opencontainers.image.title": "x"}})
	manifests := map[string][]byte{}
	for _, m := range [][]byte{whole, single, lying, outside} {
		manifests[seal.SHA256(m)] = m
	}
	manifests[seal.SHA256([]byte("old"))] = whole // a registry that answers with something else
	s := registry(t, map[string][]byte{seal.SHA256(b): b, seal.SHA256([]byte(about)): []byte(about), seal.SHA256([]byte("program")): []byte("program"),
		seal.SHA256([]byte("other")): b}, manifests)
	place := func(digest string) string {
		return "oci://" + strings.TrimPrefix(s.URL, "http://") + "/acme/x@" + digest
	}
	for name, m := range map[string][]byte{"an archive": whole, "a layer a file": single} {
		dir, err := open(t, plugins.Source{Place: place(seal.SHA256(m)), Online: true})
		if err != nil {
			t.Fatal(name, err)
		}
		holds(t, dir)
	}
	for name, c := range map[string]struct {
		place string
		code  pipeline.Code
	}{
		"another manifest": {place(seal.SHA256([]byte("old"))), pipeline.CodePluginLock}, "another layer": {place(seal.SHA256(lying)), pipeline.CodePluginLock},
		"outside": {place(seal.SHA256(outside)), pipeline.CodePluginRefused}, "a tag": {"oci://127.0.0.1:1/acme/x:latest", pipeline.CodePluginRefused},
		"not there": {place(seal.SHA256([]byte("no"))), pipeline.CodePluginUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, plugins.Source{Place: c.place, Online: true})
			if pipeline.CodeOf(err) != c.code {
				t.Error(err)
			}
		})
	}
}
