package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"reprieve.dev/pipeline"
)

const ociManifest = "application/vnd.oci.image.manifest.v1+json"

// ociForm is oci://HOST/NAME@sha256:DIGEST. Tags are not a way to name what is installed: they move.
var ociForm = regexp.MustCompile(`^oci://([A-Za-z0-9.:\[\]-]+)/([a-z0-9]+(?:[._/-][a-z0-9]+)*)@(sha256:[0-9a-f]{64})$`)

var sha256Form = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// descriptor of OCI: a manifest's layer, or an index's manifest.
type ociLayer struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// blobFunc brings the bytes of a digest, of which there are at most so many. Who asks compares them with the digest.
type blobFunc func(digest string, most int64) ([]byte, error)

func (s *Source) refuse(format string, args ...any) *pipeline.Error {
	return pipeline.Errorf(pipeline.CodePluginRefused, s.Place, format, args...)
}

// artifact fetches an OCI artifact from a registry by the digest of its manifest.
func (s *Source) artifact(ctx context.Context, to string) error {
	m := ociForm.FindStringSubmatch(s.Place)
	if m == nil {
		return s.refuse("an OCI artifact is named by its digest").With("write oci://HOST/NAME@sha256:DIGEST; tags move, so they are not taken")
	}
	host, name, digest := m[1], m[2], m[3]
	if s.Digest != "" && s.Digest != digest {
		return pipeline.Errorf(pipeline.CodePluginLock, s.Place, "two digests are asked for: %s and %s", digest, s.Digest)
	}
	base := "https://" + host + "/v2/" + name
	if loopback(host) {
		base = "http://" + host + "/v2/" + name
	}
	text, resp, err := s.get(ctx, base+"/manifests/"+digest, "", manifestMost)
	token := ""
	if resp != nil && resp.StatusCode == http.StatusUnauthorized {
		if token, err = s.token(ctx, resp.Header.Get("WWW-Authenticate"), name); err != nil {
			return err
		}
		text, _, err = s.get(ctx, base+"/manifests/"+digest, token, manifestMost)
	}
	if err != nil {
		return err
	}
	return s.assemble(text, digest, to, func(digest string, most int64) ([]byte, error) {
		b, _, err := s.get(ctx, base+"/blobs/"+digest, token, most)
		return b, err
	})
}

// assemble makes the plugin's folder from a manifest: one layer that is an archive of it, or a layer for each file with its name as
// title. Manifest and layers are verified: the manifest by digest, every layer by the digest that the verified manifest gives it.
func (s *Source) assemble(text []byte, digest, to string, blob blobFunc) error {
	if err := s.matches(text, digest); err != nil {
		return err
	}
	var manifest struct {
		Layers []ociLayer `json:"layers"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return s.refuse("the manifest cannot be read: %w", err)
	}
	if len(manifest.Layers) == 0 || len(manifest.Layers) > 64 {
		return s.refuse("the manifest has %d layers", len(manifest.Layers))
	}
	for _, l := range manifest.Layers {
		if l.Size < 0 || l.Size > archiveMost || !sha256Form.MatchString(l.Digest) {
			return s.refuse("a layer of the manifest cannot be taken")
		}
		b, err := blob(l.Digest, l.Size)
		if err != nil {
			return err
		}
		if err := s.matches(b, l.Digest); err != nil {
			return err
		}
		title := l.Annotations["org.opencontainers.image.title"]
		if len(manifest.Layers) == 1 && (title == "" || strings.Contains(l.MediaType, "tar")) {
			return s.unpack(b, to)
		}
		if title == "" {
			return s.refuse("a layer has no title, so no file name")
		}
		if err := writeFile(to, title, bytes.NewReader(b), true); err != nil {
			return s.refuse("%w", err)
		}
	}
	return nil
}

// bearer is the challenge of a registry that wants a token even from those who have no account.
var bearer = regexp.MustCompile(`(realm|service)="([^"]*)"`)

func (s *Source) token(ctx context.Context, challenge, name string) (string, error) {
	refused := s.refuse("the registry wants an account").With("fetch the artifact by other means and install the file")
	if !strings.HasPrefix(challenge, "Bearer ") {
		return "", refused
	}
	ask := map[string]string{}
	for _, m := range bearer.FindAllStringSubmatch(challenge, -1) {
		ask[m[1]] = m[2]
	}
	q := url.Values{"service": {ask["service"]}, "scope": {"repository:" + name + ":pull"}}
	b, _, err := s.get(ctx, ask["realm"]+"?"+q.Encode(), "", manifestMost)
	if err != nil {
		return "", refused
	}
	var out struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(b, &out); err != nil || out.Token+out.AccessToken == "" {
		return "", refused
	}
	return or(out.Token, out.AccessToken), nil
}
