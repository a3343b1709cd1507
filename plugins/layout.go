package plugins

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"reprieve.dev/pipeline"
)

// An OCI image layout is a registry as files: oci-layout, index.json, and blobs by their digests. It is what tools write who carry
// an artifact to a machine without a network, as a folder or packed into a tar.
const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	ociIndex   = "application/vnd.oci.image.index.v1+json"
)

// isLayout tells whether a folder is a layout and not a plugin's own folder.
func isLayout(dir string) bool {
	_, plugin := os.Stat(filepath.Join(dir, DescriptorFile))
	_, layout := os.Stat(filepath.Join(dir, layoutFile))
	return plugin != nil && layout == nil
}

// layout takes one manifest of a layout: that of the digest, or the only one there is. Codes: ERR_PLUGIN_LOCK (it holds others, with
// all digests), ERR_PLUGIN_REFUSED.
func (s *Source) layout(dir, digest, to string) error {
	var form struct {
		Version string `json:"imageLayoutVersion"`
	}
	if text, err := readLimited(filepath.Join(dir, layoutFile), manifestMost); err != nil || json.Unmarshal(text, &form) != nil || !strings.HasPrefix(form.Version, "1.") {
		return s.refuse("it is not an image layout of version 1")
	}
	text, err := readLimited(filepath.Join(dir, indexFile), manifestMost)
	if err != nil {
		return s.refuse("the layout has no index: %w", err)
	}
	blob := func(digest string, most int64) ([]byte, error) {
		b, err := readLimited(filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:")), most)
		if err != nil {
			return nil, s.refuse("%s cannot be read in the layout: %w", digest, err)
		}
		return b, nil
	}
	all, err := s.manifests(text, blob)
	if err != nil {
		return err
	}
	var known []string
	for _, m := range all {
		known = append(known, m.Digest)
	}
	switch {
	case digest == "" && len(all) != 1:
		return s.refuse("it holds %d artifacts: %s", len(all), strings.Join(known, ", ")).With("say which one: --digest sha256:...")
	case digest == "":
		digest = all[0].Digest
	}
	for _, m := range all {
		if m.Digest == digest {
			text, err := blob(digest, manifestMost)
			if err != nil {
				return err
			}
			return s.assemble(text, digest, to, blob)
		}
	}
	return pipeline.Errorf(pipeline.CodePluginLock, s.Place, "%s is asked for, the layout holds %s", digest, strings.Join(known, ", ")).
		With("Ask its publisher which one is right; a version never changes.")
}

// manifests are those of an index for this machine. An index in it is opened, once: builders write one for each platform.
func (s *Source) manifests(index []byte, blob blobFunc) (all []ociLayer, err error) {
	read := func(text []byte) ([]ociLayer, error) {
		var in struct {
			Manifests []ociLayer `json:"manifests"`
		}
		if err := json.Unmarshal(text, &in); err != nil {
			return nil, s.refuse("the index cannot be read: %w", err)
		}
		if len(in.Manifests) > 64 {
			return nil, s.refuse("the index names %d manifests", len(in.Manifests))
		}
		var out []ociLayer
		for _, m := range in.Manifests {
			if !sha256Form.MatchString(m.Digest) {
				return nil, s.refuse("the index names %q, which is no digest of SHA-256", m.Digest)
			}
			if p := m.Platform; p.OS == "" || p.OS == runtime.GOOS && p.Architecture == runtime.GOARCH {
				out = append(out, m)
			}
		}
		return out, nil
	}
	top, err := read(index)
	if err != nil {
		return nil, err
	}
	for _, m := range top {
		if m.MediaType != ociIndex {
			all = append(all, m)
			continue
		}
		text, err := blob(m.Digest, manifestMost)
		if err == nil {
			err = s.matches(text, m.Digest)
		}
		if err != nil {
			return nil, err
		}
		below, err := read(text)
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}
