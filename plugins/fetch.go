package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Limits of what is fetched.
const (
	archiveMost  = 512 << 20 // bytes of an archive, packed
	manifestMost = 4 << 20   // bytes of an OCI manifest or a token
)

// Source is where a plugin is installed from: its folder or an archive (tar, tar.gz) of it, an OCI image layout as folder or archive,
// an archive over HTTP, or an OCI artifact of a registry.
type Source struct {
	// Place is a path, https://HOST/FILE.tar.gz or oci://HOST/NAME@sha256:DIGEST. Plain http is for this machine only.
	Place string
	// Digest is "sha256:..." of the archive, or of the manifest in an image layout: required over HTTP, checked wherever it is given.
	Digest string
	// Online allows the network. Without it nothing is fetched.
	Online bool
	Client *http.Client
}

// Open makes the source a folder that holds plugin.yaml; done removes what was fetched. Codes: ERR_PLUGIN_UNKNOWN,
// ERR_PLUGIN_REFUSED (offline, no digest, not an archive), ERR_PLUGIN_LOCK (other bytes than the digest says, with both).
func (s *Source) Open(ctx context.Context) (dir string, done func(), err error) {
	remote := strings.Contains(s.Place, "://")
	if !remote {
		if st, err := os.Stat(s.Place); err != nil {
			return "", nil, pipeline.Errorf(pipeline.CodePluginUnknown, s.Place, "there is no plugin here: %w", err).With("name a folder that holds " + DescriptorFile + ", or an archive of one")
		} else if st.IsDir() && !isLayout(s.Place) {
			if s.Digest != "" {
				return "", nil, pipeline.Errorf(pipeline.CodePluginRefused, s.Place, "a folder has no digest").With("leave --digest out: the program's digest is pinned anyway")
			}
			return s.Place, func() {}, nil
		}
	}
	if remote && !s.Online {
		return "", nil, pipeline.Errorf(pipeline.CodePluginRefused, s.Place, "installing is offline unless you say otherwise").With("add --online to fetch it, or fetch it by other means and install the file")
	}
	tmp, err := os.MkdirTemp("", "reprieve-install-")
	if err != nil {
		return "", nil, err
	}
	clean := func() { _ = os.RemoveAll(tmp) } // a folder of the system's temporary folder
	defer func() {
		if err != nil {
			clean()
		}
	}()
	switch {
	case strings.HasPrefix(s.Place, "oci://"):
		err = s.artifact(ctx, tmp)
	case remote:
		err = s.download(ctx, tmp)
	case isLayout(s.Place):
		err = s.layout(s.Place, s.Digest, tmp)
	default:
		var b []byte
		if b, err = readLimited(s.Place, archiveMost); err == nil {
			err = s.take(b, tmp)
		}
	}
	if err != nil {
		return "", nil, err
	}
	if dir, err = descriptorIn(tmp); err != nil {
		return "", nil, pipeline.Errorf(pipeline.CodePluginUnknown, s.Place, "the archive holds no plugin: %w", err).With("pack the folder that holds " + DescriptorFile)
	}
	return dir, clean, nil
}

// readLimited reads a file of at most so many bytes. A pipe or a device would never end.
func readLimited(file string, most int64) ([]byte, error) {
	if st, err := os.Stat(file); err == nil && !st.Mode().IsRegular() { // before it is opened: a pipe waits there already
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return limitedTo(f, most)
}

func limitedTo(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it has more than %d MiB", most>>20)
	}
	return b, err
}

// take unpacks an archive whose digest is asked for: of a plugin's folder, or of an image layout. A layout is known by the digest of
// its manifest as well: tools that pack one do not always write the same bytes.
func (s *Source) take(archive []byte, to string) error {
	if !archived(archive, layoutFile) {
		if err := s.matches(archive, s.Digest); err != nil {
			return err
		}
		return s.unpack(archive, to)
	}
	dir, err := os.MkdirTemp("", "reprieve-layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := s.unpack(archive, dir); err != nil {
		return err
	}
	digest := s.Digest
	if digest == seal.SHA256(archive) {
		digest = ""
	}
	return s.layout(dir, digest, to)
}

func (s *Source) unpack(archive []byte, to string) error {
	if err := unpackArchive(archive, to); err != nil {
		return s.refuse("%w", err).With("a plugin is a tar or tar.gz of its folder, with files and folders only")
	}
	return nil
}

// matches compares bytes with a digest; an empty one is not asked about.
func (s *Source) matches(b []byte, digest string) error {
	if got := seal.SHA256(b); digest != "" && got != digest {
		return pipeline.Errorf(pipeline.CodePluginLock, s.Place, "it has changed: %s is asked for, what came has %s", digest, got).
			With("Ask its publisher which one is right; a version never changes.")
	}
	return nil
}

// descriptorIn is the folder with the descriptor: the archive's own, or the only folder in it.
func descriptorIn(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, DescriptorFile)); err == nil {
		return dir, nil
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", DescriptorFile))
	if err != nil || len(found) != 1 {
		return "", errors.New("no " + DescriptorFile + " at its top")
	}
	return filepath.Dir(found[0]), nil
}

// download fetches an archive over HTTP.
func (s *Source) download(ctx context.Context, to string) error {
	if s.Digest == "" {
		return pipeline.Errorf(pipeline.CodePluginRefused, s.Place, "what comes over the network is taken by its digest only").With("add --digest sha256:..., as its publisher says it")
	}
	b, _, err := s.get(ctx, s.Place, "", archiveMost)
	if err != nil {
		return err
	}
	return s.take(b, to)
}

// get asks for one URL. Codes: ERR_PLUGIN_UNKNOWN, ERR_PLUGIN_REFUSED.
func (s *Source) get(ctx context.Context, address, token string, most int64) ([]byte, *http.Response, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, nil, pipeline.Errorf(pipeline.CodePluginRefused, s.Place, "it is not a URL")
	}
	if err := plainOnlyHere(u); err != nil {
		return nil, nil, pipeline.Errorf(pipeline.CodePluginRefused, s.Place, "%w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, pipeline.Errorf(pipeline.CodePluginRefused, s.Place, "%w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Accept", ociManifest+", */*")
	c := *s.Client
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) > 5 {
			return errors.New("it is redirected too often")
		}
		if r.URL.Host != via[0].URL.Host {
			r.Header.Del("Authorization")
		}
		return plainOnlyHere(r.URL)
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, nil, pipeline.Errorf(pipeline.CodePluginUnknown, s.Place, "it cannot be fetched: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, resp, pipeline.Errorf(pipeline.CodePluginUnknown, s.Place, "the server answers %d", resp.StatusCode)
	}
	b, err := limitedTo(resp.Body, most)
	if err != nil {
		return nil, resp, pipeline.Errorf(pipeline.CodePluginRefused, s.Place, "%w", err)
	}
	return b, resp, nil
}

// plainOnlyHere refuses plain HTTP to another machine.
func plainOnlyHere(u *url.URL) error {
	switch {
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && loopback(u.Host):
		return nil
	}
	return fmt.Errorf("%s:// is not a way to fetch a plugin; https:// and oci:// are", u.Scheme)
}

func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// writeFile writes one file of an archive below to.
func writeFile(to, name string, content io.Reader, exec bool) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q leads out of the archive", name)
	}
	file := filepath.Join(to, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if exec {
		mode = 0o755
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

func isGzip(b []byte) bool { return bytes.HasPrefix(b, []byte{0x1f, 0x8b}) }
