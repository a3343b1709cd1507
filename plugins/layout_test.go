package plugins_test

import (
	"archive/tar"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/seal"
)

// layoutOf are the files of an image layout whose index names manifests, with blobs by their digest.
func layoutOf(t *testing.T, index any, blobs ...[]byte) map[string]string {
	t.Helper()
	text, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "index.json": string(text)}
	for _, b := range blobs {
		out["blobs/sha256/"+strings.TrimPrefix(seal.SHA256(b), "sha256:")] = string(b)
	}
	return out
}

func indexOf(manifests ...map[string]any) map[string]any {
	return map[string]any{"schemaVersion": 2, "manifests": manifests}
}

func named(media string, b []byte, osys, arch string) map[string]any {
	out := map[string]any{"mediaType": media, "digest": seal.SHA256(b), "size": len(b)}
	if osys != "" {
		out["platform"] = map[string]string{"os": osys, "architecture": arch}
	}
	return out
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// placed writes the files of a layout as a folder and as a tar, and returns both places.
func placed(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	var entries []entry
	for name, text := range files {
		file := filepath.Join(dir, "layout", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry{"./" + name, text, tar.TypeReg})
	}
	out := map[string]string{"folder": filepath.Join(dir, "layout")}
	for name, zip := range map[string]bool{"tar": false, "tar.gz": true} {
		out[name] = filepath.Join(dir, "layout."+name)
		if err := os.WriteFile(out[name], archive(t, zip, entries...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestAPluginIsInstalledFromAnImageLayout(t *testing.T) {
	b := good(t)
	whole := manifest(t, layer{"application/vnd.oci.image.layer.v1.tar+gzip", seal.SHA256(b), len(b), nil})
	titled := func(name, text string) layer {
		return layer{"application/octet-stream", seal.SHA256([]byte(text)), len(text), map[string]string{"org.opencontainers.image.title": name}}
	}
	single := manifest(t, titled("plugin.yaml", about), titled("x", "program"))
	elsewhere := manifest(t, titled("plugin.yaml", "of another machine"))
	below, err := json.Marshal(indexOf(named(manifestType, single, "linux", runtime.GOARCH), named(manifestType, elsewhere, "plan9", "mips")))
	if err != nil {
		t.Fatal(err)
	}
	files := [][]byte{[]byte(about), []byte("program"), b, whole, single, elsewhere, below}
	for name, c := range map[string]struct {
		files  map[string]string
		digest string
	}{
		"one manifest":               {layoutOf(t, indexOf(named(manifestType, whole, "", "")), files...), ""},
		"one manifest, by digest":    {layoutOf(t, indexOf(named(manifestType, whole, "", "")), files...), seal.SHA256(whole)},
		"a layer a file":             {layoutOf(t, indexOf(named(manifestType, single, "", "")), files...), ""},
		"two manifests, by digest":   {layoutOf(t, indexOf(named(manifestType, whole, "", ""), named(manifestType, single, "", "")), files...), seal.SHA256(single)},
		"an index for each platform": {layoutOf(t, indexOf(named(indexType, below, "", "")), files...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, place := range placed(t, c.files) {
				dir, err := open(t, plugins.Source{Place: place, Digest: c.digest})
				if err != nil {
					t.Fatal(kind, err)
				}
				holds(t, dir)
				if kind == "folder" {
					continue
				}
				packed, err := os.ReadFile(place)
				if err != nil {
					t.Fatal(err)
				}
				if c.digest == "" { // the digest of the archive will do as well
					if dir, err = open(t, plugins.Source{Place: place, Digest: seal.SHA256(packed)}); err != nil {
						t.Fatal(kind, err)
					}
					holds(t, dir)
				}
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed) }))
				dir, err = open(t, plugins.Source{Place: s.URL + "/layout." + kind, Digest: c.digest, Online: true})
				s.Close()
				if c.digest == "" {
					if pipeline.CodeOf(err) != pipeline.CodePluginRefused {
						t.Errorf("over the network without a digest: %v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(kind, err)
				}
				holds(t, dir)
			}
		})
	}
}

func TestAnImageLayoutThatIsNotAsItsDigestsSayIsRefused(t *testing.T) {
	b := good(t)
	whole := manifest(t, layer{"application/vnd.oci.image.layer.v1.tar+gzip", seal.SHA256(b), len(b), nil})
	outside := manifest(t, layer{"text/plain", seal.SHA256([]byte(about)), len(about), map[string]string{"org.opencontainers.image.title": "../plugin.yaml"}},
		layer{"text/plain", seal.SHA256([]byte("program")), 7, map[string]string{"org.opencontainers.image.title": "x"}})
	index := indexOf(named(manifestType, whole, "", ""))
	blobs := [][]byte{b, whole, outside, []byte(about), []byte("program")}
	change := func(f func(files map[string]string)) map[string]string {
		files := layoutOf(t, index, blobs...)
		f(files)
		return files
	}
	at := func(b []byte) string { return "blobs/sha256/" + strings.TrimPrefix(seal.SHA256(b), "sha256:") }
	for name, c := range map[string]struct {
		files   map[string]string
		digest  string
		code    pipeline.Code
		digests int // in the text
	}{
		"another manifest is asked for": {layoutOf(t, index, blobs...), seal.SHA256([]byte("other")), pipeline.CodePluginLock, 2},
		"the manifest was changed":      {change(func(f map[string]string) { f[at(whole)] += " " }), "", pipeline.CodePluginLock, 2},
		"a layer was changed": {change(func(f map[string]string) {
			f[at(b)] = f[at(b)][:len(b)-1] + "!"
		}), "", pipeline.CodePluginLock, 2},
		"a layer is longer than said": {change(func(f map[string]string) { f[at(b)] += "!" }), "", pipeline.CodePluginRefused, 1},
		"a layer is missing":          {change(func(f map[string]string) { delete(f, at(b)) }), "", pipeline.CodePluginRefused, 1},
		"no index":                    {change(func(f map[string]string) { delete(f, "index.json") }), "", pipeline.CodePluginRefused, 0},
		"another version":             {change(func(f map[string]string) { f["oci-layout"] = `{"imageLayoutVersion":"2.0.0"}` }), "", pipeline.CodePluginRefused, 0},
		"a file that leads outside":   {layoutOf(t, indexOf(named(manifestType, outside, "", "")), blobs...), "", pipeline.CodePluginRefused, 0},
		"two and none is named": {layoutOf(t, indexOf(named(manifestType, whole, "", ""), named(manifestType, outside, "", "")), blobs...), "",
			pipeline.CodePluginRefused, 2},
		"none for this machine": {layoutOf(t, indexOf(named(manifestType, whole, "plan9", "mips")), blobs...), "", pipeline.CodePluginRefused, 0},
		"a digest that is a path": {layoutOf(t, indexOf(map[string]any{"mediaType": manifestType, "digest": "sha256:../../etc/passwd"}), blobs...), "",
			pipeline.CodePluginRefused, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, place := range placed(t, c.files) {
				_, err := open(t, plugins.Source{Place: place, Digest: c.digest})
				if pipeline.CodeOf(err) != c.code {
					t.Fatalf("%s: %v", kind, err)
				}
				text := strings.ReplaceAll(err.Error(), "sha256:...", "")
				if n := strings.Count(text, "sha256:"); c.digests > 0 && n != c.digests {
					t.Errorf("%s: %d digests in %q", kind, n, text)
				}
			}
		})
	}
}
