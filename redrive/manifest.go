package redrive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// ChunkLines is how many items stand in one chunk file.
const ChunkLines = 10_000

// Manifest is a frozen redrive: what is sent, where to, how fast, and when to stop (CONTRACTS 8). Its canonical bytes' digest is
// its identity.
type Manifest struct {
	V           int          `json:"v"`
	Pipeline    string       `json:"pipeline"`
	Tenant      string       `json:"tenant"` // one tenant: a redrive never crosses tenants
	Requester   string       `json:"requester"`
	Ticket      string       `json:"ticket"`
	Created     string       `json:"created"` // RFC 3339, UTC, milliseconds
	Selection   Selected     `json:"selection"`
	Source      []string     `json:"source"`      // topics where the items first stood
	Destination string       `json:"destination"` // the pipeline's retry topic
	Reenter     string       `json:"reenter"`     // "first": each pass re-enters at the first stage
	Transform   *TransformID `json:"transform"`   // of the registered repairs; null: as they were, or several
	Schemas     []string     `json:"schemas"`
	Identity    IdentityRule `json:"identity"`
	Order       Order        `json:"order"`
	Pace        Pace         `json:"pace"`
	Canary      Canary       `json:"canary"`
	Stop        Stop         `json:"stop"`
	Measures    []Measure    `json:"measures"`
	Reconcile   string       `json:"reconcile"`   // here, outcomes, http, person
	Unconfirmed string       `json:"unconfirmed"` // "refused" or "accepted": items whose source progress is unknown
	Horizon     string       `json:"horizon"`     // "kept" or "accepted": items past the deduplication horizon
	Loop        string       `json:"loop"`        // "refused" or "accepted": one item that has come back too often
	Abort       string       `json:"abort"`       // what stopping leaves: "keep" (unsent items go back)
	Generation  uint32       `json:"generation"`
}

// Selected is what a manifest selects. Count, excluded and the snapshot's own count add up.
type Selected struct {
	Snapshot string           `json:"snapshot"`
	Selected int64            `json:"selected"` // items of the snapshot
	Count    int64            `json:"count"`    // items that are sent
	Bytes    string           `json:"bytes"`    // of key, value and headers, decimal
	Classes  map[string]int64 `json:"classes"`
	Excluded map[string]int64 `json:"excluded"` // reason -> items that are not sent
	Merkle   string           `json:"merkle"`   // root over all lines
	Chunks   []Chunk          `json:"chunks"`
}

// Chunk is one file of at most ChunkLines lines.
type Chunk struct {
	File   string `json:"file"`
	Count  int64  `json:"count"`
	SHA256 string `json:"sha256"`
}

// TransformID names the transform of the repairs.
type TransformID struct {
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Artifact pipeline.Digest `json:"artifact"`
	Config   pipeline.Digest `json:"config"`
}

// IdentityRule says whether items keep their logical id.
type IdentityRule struct {
	Policy string `json:"policy"` // keep; new needs an intent and a second approval
	Intent string `json:"intent"`
}

// Order says how order is kept: by key, always.
type Order struct {
	By     string `json:"by"`
	Suffix string `json:"suffix"` // what follows an item of the same key: "excluded" or "included"
}

// Pace bounds a run.
type Pace struct {
	Rate        string            `json:"rate"` // "50/s": attempts
	Concurrency int               `json:"concurrency"`
	Budget      int64             `json:"budget"` // most attempts of the run; 0 is count
	Quotas      map[string]string `json:"quotas"` // "tenant/acme", "destination/TOPIC" -> rate that is shared with other runs
	Window      int               `json:"window"` // most items in flight
}

// Canary is the part that goes first and is reconciled before the rest.
type Canary struct {
	N      int    `json:"n"`
	Expect string `json:"expect"` // "reconciled": each canary item must be
}

// Stop are the thresholds. A run that crosses one sends nothing more.
type Stop struct {
	Failures   int64  `json:"failures"`   // items that could not be sent or failed again; 0 stops at the first
	Latency    string `json:"latency"`    // longest time from a send to its acknowledgement; "" is not watched
	Duplicates int64  `json:"duplicates"` // outcomes already_applied; -1 is not watched
}

// Measure is a sum over the items that must reconcile, as amounts do.
type Measure struct {
	Name string `json:"name"`
	CEL  string `json:"cel"`
	Sum  string `json:"sum"` // of a report: exact, decimal, over what would be sent; empty in a manifest
}

// Line is one item of a chunk. Its canonical JSON is what is hashed.
type Line struct {
	N      int64           `json:"n"` // from 1, in sending order
	Item   pipeline.ID     `json:"id"`
	Repair string          `json:"repair"` // "" sends the faithful bytes
	Digest pipeline.Digest `json:"digest"` // keyed, of the value that is sent
	Order  string          `json:"order"`  // keyed digest of the record's key; items of one stay in order
	Ask    bool            `json:"ask"`    // it leaves only after the answer that its effect is absent
	Newer  pipeline.ID     `json:"newer"`  // "": it is sent; else the item of a newer state that supersedes it
}

// appendLine writes the canonical form: the members in their order (RFC 8785), one line.
func appendLine(dst []byte, l *Line) []byte {
	str := func(name, v string, more byte) {
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, '"', ':')
		b, _ := json.Marshal(v) // ids and digests: plain ASCII
		dst = append(append(dst, b...), more)
	}
	dst = append(dst, `{"ask":`...)
	dst = append(strconv.AppendBool(dst, l.Ask), ',')
	str("digest", string(l.Digest), ',')
	str("id", string(l.Item), ',')
	dst = append(dst, `"n":`...)
	dst = append(strconv.AppendInt(dst, l.N, 10), ',')
	str("newer", string(l.Newer), ',')
	str("order", l.Order, ',')
	str("repair", l.Repair, '}')
	return append(dst, '\n')
}

// chunker cuts lines into chunks as they come: their descriptions and the merkle root. It keeps one chunk in memory.
type chunker struct {
	file func(bytes []byte) // is given each chunk's bytes; nil: nobody wants them
	list []Chunk
	tree merkle
	buf  []byte
	n    int64 // lines in buf
}

func (c *chunker) add(l *Line) {
	from := len(c.buf)
	c.buf = appendLine(c.buf, l)
	c.tree.add(c.buf[from:])
	if c.n++; c.n == ChunkLines {
		c.cut()
	}
}

func (c *chunker) cut() {
	if c.n == 0 {
		return
	}
	c.list = append(c.list, Chunk{File: chunkName(len(c.list)), Count: c.n, SHA256: seal.SHA256(c.buf)})
	if c.file != nil {
		c.file(c.buf)
	}
	c.buf, c.n = c.buf[:0], 0
}

// end is after the last line.
func (c *chunker) end() (list []Chunk, root string) {
	c.cut()
	if c.list == nil {
		c.list = []Chunk{}
	}
	return c.list, c.tree.root()
}

func chunkName(i int) string {
	s := strconv.Itoa(i + 1)
	return "items-" + strings.Repeat("0", max(0, 5-len(s))) + s + ".jsonl"
}

// merkle is a tree over lines as RFC 6962 builds it: leaves and nodes are hashed apart.
type merkle struct{ peaks []peak }

type peak struct {
	hash [32]byte
	size int
}

func (m *merkle) add(line []byte) {
	m.peaks = append(m.peaks, peak{sha256.Sum256(append([]byte{0}, line...)), 1})
	for n := len(m.peaks); n > 1 && m.peaks[n-1].size == m.peaks[n-2].size; n-- {
		m.peaks[n-2] = peak{join(m.peaks[n-2].hash, m.peaks[n-1].hash), 2 * m.peaks[n-1].size}
		m.peaks = m.peaks[:n-1]
	}
}

func join(a, b [32]byte) [32]byte {
	return sha256.Sum256(append(append([]byte{1}, a[:]...), b[:]...))
}

func (m *merkle) root() string {
	if len(m.peaks) == 0 {
		h := sha256.Sum256(nil)
		return "sha256:" + hex.EncodeToString(h[:])
	}
	h := m.peaks[len(m.peaks)-1].hash
	for i := len(m.peaks) - 2; i >= 0; i-- {
		h = join(m.peaks[i].hash, h)
	}
	return "sha256:" + hex.EncodeToString(h[:])
}

// Bytes is the canonical form.
func (m *Manifest) Bytes() ([]byte, error) {
	b, err := seal.Canonical(m)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeManifestInvalid, m.Pipeline, "it has no canonical form: %w", err)
	}
	return b, nil
}

// Digest is the manifest's identity, and the redrive id of everything that it sends.
func (m *Manifest) Digest() (pipeline.Digest, error) {
	b, err := m.Bytes()
	if err != nil {
		return "", err
	}
	return pipeline.Digest(seal.SHA256(b)), nil
}

// ParseManifest reads a manifest that must be byte-equal to its canonical form and to digest (INV-MANIFEST). Codes:
// ERR_MANIFEST_DIGEST, ERR_MANIFEST_INVALID.
func ParseManifest(body []byte, digest pipeline.Digest) (*Manifest, error) {
	if got := pipeline.Digest(seal.SHA256(body)); got != digest {
		return nil, pipeline.Errorf(pipeline.CodeManifestDigest, string(digest), "its bytes have the digest %s", got)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeManifestInvalid, string(digest), "it is not a manifest: %w", err)
	}
	again, err := m.Bytes()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, body) {
		return nil, pipeline.Errorf(pipeline.CodeManifestDigest, string(digest), "it is not written canonically")
	}
	if m.V != 1 {
		return nil, pipeline.Errorf(pipeline.CodeManifestInvalid, string(digest), "version %d is not known here", m.V)
	}
	return &m, nil
}

// verifyLines tells whether lines are exactly what the manifest froze.
func (m *Manifest) verifyLines(digest pipeline.Digest, lines []Line) error {
	var c chunker
	for i := range lines {
		c.add(&lines[i])
	}
	list, root := c.end()
	if int64(len(lines)) != m.Selection.Count || root != m.Selection.Merkle || len(list) != len(m.Selection.Chunks) {
		return pipeline.Errorf(pipeline.CodeManifestDigest, string(digest), "its items are not those that were frozen")
	}
	for i := range list {
		if list[i] != m.Selection.Chunks[i] {
			return pipeline.Errorf(pipeline.CodeManifestDigest, string(digest)+" "+list[i].File, "the chunk was changed")
		}
	}
	return nil
}

// WriteFiles writes manifest.json and its chunks into dir, which is made if need be.
func WriteFiles(dir string, m *Manifest, lines []Line) error {
	body, err := m.Bytes()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return pipeline.Errorf(pipeline.CodeManifestInvalid, dir, "%w", err)
	}
	var failed error
	at := 0
	c := chunker{file: func(b []byte) {
		if err := os.WriteFile(filepath.Join(dir, chunkName(at)), b, 0o600); err != nil && failed == nil {
			failed = pipeline.Errorf(pipeline.CodeManifestInvalid, dir, "%w", err)
		}
		at++
	}}
	for i := range lines {
		c.add(&lines[i])
	}
	if c.end(); failed != nil {
		return failed
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), body, 0o600); err != nil {
		return pipeline.Errorf(pipeline.CodeManifestInvalid, dir, "%w", err)
	}
	return nil
}

// ReadFiles reads what WriteFiles wrote and verifies every byte against digest. Codes: ERR_MANIFEST_DIGEST,
// ERR_MANIFEST_INVALID.
func ReadFiles(dir string, digest pipeline.Digest) (*Manifest, []Line, error) {
	body, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return nil, nil, pipeline.Errorf(pipeline.CodeManifestInvalid, dir, "%w", err)
	}
	m, err := ParseManifest(body, digest)
	if err != nil {
		return nil, nil, err
	}
	var lines []Line
	for i, c := range m.Selection.Chunks {
		if c.File != chunkName(i) {
			return nil, nil, pipeline.Errorf(pipeline.CodeManifestInvalid, c.File, "a chunk has a name of its own")
		}
		b, err := os.ReadFile(filepath.Join(dir, c.File))
		if err != nil {
			return nil, nil, pipeline.Errorf(pipeline.CodeManifestInvalid, c.File, "%w", err)
		}
		if seal.SHA256(b) != c.SHA256 {
			return nil, nil, pipeline.Errorf(pipeline.CodeManifestDigest, c.File, "the chunk was changed")
		}
		for raw := range bytes.Lines(b) {
			var l Line
			if err := json.Unmarshal(raw, &l); err != nil {
				return nil, nil, pipeline.Errorf(pipeline.CodeManifestInvalid, c.File, "a line is not an item: %w", err)
			}
			lines = append(lines, l)
		}
	}
	return m, lines, m.verifyLines(digest, lines)
}
