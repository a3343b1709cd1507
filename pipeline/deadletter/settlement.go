package deadletter

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"iter"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// settled are the dispositions that a settlement names offset by offset; the rest of its interval was delivered or is a gap
// of the broker (a control record, a compacted or aborted one).
var settled = [...]pipeline.Disposition{pipeline.Retried, pipeline.DeadLettered, pipeline.Sealed, pipeline.InFallback, pipeline.Parked, pipeline.Ranged}

// Settlement says what became of the records of one partition between two commits. It collects by Add, beyond To too; at a
// commit the caller writes a Part of each interval that is Due and goes on after Advance. Not safe for concurrent use.
type Settlement struct {
	Pipeline string
	TP       pipeline.TP
	Epoch    uint32
	From, To int64 // [From, To)
	Next     int64 // the offset that its commit makes the next to be read: below From, the interval lies ahead of it
	Policy   pipeline.Digest

	sets      [pipeline.Ranged + 1]*roaring64.Bitmap
	delivered pipeline.Offsets // while collecting
	ahead     pipeline.Offsets // while collecting: what the last commit settled beyond From
	nDeliver  int64            // of a parsed one
}

// NewSettlement begins behind what the last commit settled: its watermark, and what it had ahead.
func NewSettlement(pipelineName string, tp pipeline.TP, epoch uint32, last pipeline.Checkpoint) *Settlement {
	return &Settlement{Pipeline: pipelineName, TP: tp, Epoch: epoch, From: last.Next, To: last.Next, Next: last.Next, ahead: last.Ahead.Clone()}
}

// Due are the intervals [from, to) that a commit of c settles and no commit before it did, ascending. What c has ahead is among
// them: the life that reads on from c will not know what became of it.
func (s *Settlement) Due(c pipeline.Checkpoint) iter.Seq2[int64, int64] {
	var due pipeline.Offsets
	due.AddRange(s.From, c.Next)
	for from, to := range c.Ahead.Intervals {
		due.AddRange(from, to)
	}
	for from, to := range s.ahead.Intervals {
		due.DropRange(from, to)
	}
	return due.Intervals
}

// Add says what became of one offset. Each offset has exactly one disposition: the first one stays. Offsets below From and
// Pending are ignored. Ascending adds are cheap; a delivered one touches no bitmap.
func (s *Settlement) Add(off int64, d pipeline.Disposition) {
	if off < s.From || off < 0 || d == pipeline.Pending || d > pipeline.Ranged {
		return
	}
	if _, known := s.Disposition(off); known {
		return
	}
	if d == pipeline.Delivered {
		s.delivered.Add(off)
		return
	}
	if s.sets[d] == nil {
		s.sets[d] = roaring64.New()
	}
	s.sets[d].Add(uint64(off))
}

// Disposition is what became of an offset. Of a parsed settlement, Delivered and known for any offset of the interval that
// it does not name: delivered, or a gap.
func (s *Settlement) Disposition(off int64) (d pipeline.Disposition, known bool) {
	if off < s.From {
		return pipeline.Pending, false
	}
	for _, d := range settled {
		if s.sets[d] != nil && s.sets[d].Contains(uint64(off)) {
			return d, true
		}
	}
	if s.delivered.Has(off) || s.nDeliver > 0 && off < s.To {
		return pipeline.Delivered, true
	}
	return pipeline.Pending, false
}

// Count is how many offsets below To have the disposition.
func (s *Settlement) Count(d pipeline.Disposition) int64 {
	if d == pipeline.Delivered {
		if s.nDeliver > 0 {
			return s.nDeliver
		}
		ahead := s.delivered.Clone()
		ahead.DropBelow(s.To)
		return s.delivered.Count() - ahead.Count()
	}
	if d > pipeline.Ranged || s.sets[d] == nil || s.To <= 0 {
		return 0
	}
	return int64(s.sets[d].Rank(uint64(s.To - 1)))
}

// Offsets are the offsets below To of one disposition, ascending; none for Delivered.
func (s *Settlement) Offsets(d pipeline.Disposition) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		if d > pipeline.Ranged || s.sets[d] == nil {
			return
		}
		for it := s.sets[d].Iterator(); it.HasNext(); {
			if off := int64(it.Next()); off >= s.To || !yield(off) {
				return
			}
		}
	}
}

// Advance forgets what a commit of c settled below its watermark: From is the watermark now.
func (s *Settlement) Advance(c pipeline.Checkpoint) {
	for _, d := range settled {
		if b := s.sets[d]; b != nil {
			b.RemoveRange(uint64(s.From), uint64(c.Next))
			if b.IsEmpty() {
				s.sets[d] = nil
			}
		}
	}
	s.delivered.DropBelow(c.Next)
	s.From, s.To, s.Next, s.ahead = c.Next, c.Next, c.Next, c.Ahead.Clone()
}

// Part is the settlement of [from, to) alone, a part of what s collected, for a commit that makes next the next offset to be read.
// It shares what it can with s: it is to be written before s changes.
func (s *Settlement) Part(from, to, next int64) *Settlement {
	part := &Settlement{Pipeline: s.Pipeline, TP: s.TP, Epoch: s.Epoch, From: from, To: to, Next: next, Policy: s.Policy, sets: s.sets, delivered: s.delivered}
	if from == s.From {
		return part
	}
	part.delivered = s.delivered.Clone()
	part.delivered.DropBelow(from)
	for _, d := range settled {
		if s.sets[d] != nil {
			part.sets[d] = s.sets[d].Clone()
			part.sets[d].RemoveRange(0, uint64(from))
		}
	}
	return part
}

// settlementJSON is the value (CONTRACTS 5): canonical JSON, 64-bit numbers as text.
type settlementJSON struct {
	V         int               `json:"v"`
	Pipeline  string            `json:"pipeline"`
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Epoch     uint32            `json:"epoch"`
	From      string            `json:"from"`
	To        string            `json:"to"`
	Next      string            `json:"next,omitempty"` // where it is not to
	Policy    string            `json:"policy"`
	Counts    map[string]string `json:"counts"`
	Sets      map[string]string `json:"sets,omitempty"` // disposition -> base64 of the portable form of a 64-bit roaring bitmap
}

// domainSettlement stands in for the topic in the signature: the prefix of the topic is the reader's business.
const domainSettlement = "settlements"

// AppendMessage makes m the settlement of [From, To), signed. Its key is "pipeline/topic/partition". Codes: ERR_INTERNAL.
// Cost: proportional to the named offsets, not to the interval.
func (s *Settlement) AppendMessage(m *pipeline.Message, topicPrefix string, ring *seal.Ring) error {
	v := settlementJSON{V: 1, Pipeline: cleanText(s.Pipeline), Topic: s.TP.Topic, Partition: s.TP.Partition, Epoch: s.Epoch,
		From: strconv.FormatInt(s.From, 10), To: strconv.FormatInt(s.To, 10), Policy: string(s.Policy), Counts: map[string]string{}}
	if s.Next != s.To {
		v.Next = strconv.FormatInt(s.Next, 10)
	}
	if n := s.Count(pipeline.Delivered); n > 0 {
		v.Counts[pipeline.Delivered.String()] = strconv.FormatInt(n, 10)
	}
	for _, d := range settled {
		n := s.Count(d)
		if n == 0 {
			continue
		}
		set := s.sets[d].Clone()
		set.RemoveRange(uint64(s.To), ^uint64(0))
		set.RunOptimize()
		b, err := set.ToBytes()
		if err != nil {
			return pipeline.Errorf(pipeline.CodeInternal, s.TP.String(), "a bitmap cannot be written: %w", err)
		}
		v.Counts[d.String()] = strconv.FormatInt(n, 10)
		if v.Sets == nil {
			v.Sets = map[string]string{}
		}
		v.Sets[d.String()] = base64.StdEncoding.EncodeToString(b)
	}
	value, err := seal.Canonical(v)
	if err != nil {
		return pipeline.Errorf(pipeline.CodeInternal, s.TP.String(), "the settlement cannot be written: %w", err)
	}
	m.Topic = SettlementsTopic(topicPrefix)
	m.Key = []byte(v.Pipeline + "/" + s.TP.String())
	m.Value = value
	m.Headers = append(m.Headers[:0], pipeline.Header{Name: headerV, Value: []byte("1")})
	if ring != nil {
		msg := signedText(domainSettlement, m.Key, m.Value, m.Headers)
		m.Headers = append(m.Headers, pipeline.Header{Name: headerSig, Value: signature(ring, msg)})
	}
	return nil
}

// maxSet bounds what one bitmap may unpack to, so that a signed message that was damaged before it was signed cannot take
// the memory.
const maxSet = 64 << 20

// ParseSettlement reads a settlement and believes nothing that is not signed. Codes: ERR_SIGNATURE_INVALID,
// ERR_LETTER_INVALID (signed, but not a settlement: offsets outside the interval, in two sets, or other counts).
func ParseSettlement(rec *pipeline.Record, ring *seal.Ring) (*Settlement, error) {
	if !verify(domainSettlement, rec, ring) {
		return nil, pipeline.Errorf(pipeline.CodeSignatureInvalid, "settlement at offset "+strconv.FormatInt(rec.Offset, 10), "a settlement has no valid signature")
	}
	s, what := parseSettlement(rec.Value)
	if s == nil {
		return nil, pipeline.Errorf(pipeline.CodeLetterInvalid, "settlement at offset "+strconv.FormatInt(rec.Offset, 10), "a signed settlement is not readable: %s", what)
	}
	return s, nil
}

func parseSettlement(value []byte) (s *Settlement, what string) {
	var v settlementJSON
	if err := json.Unmarshal(value, &v); err != nil || v.V != 1 {
		return nil, "it is not version 1"
	}
	from, ok1 := parseDecimal([]byte(v.From))
	to, ok2 := parseDecimal([]byte(v.To))
	if !ok1 || !ok2 || from < 0 || to < from || v.Topic == "" || v.Partition < 0 {
		return nil, "its interval is none"
	}
	next := to
	if v.Next != "" {
		ok := false
		if next, ok = parseDecimal([]byte(v.Next)); !ok || next < 0 {
			return nil, "the next offset of its commit is none"
		}
	}
	s = &Settlement{Pipeline: v.Pipeline, TP: pipeline.TP{Topic: v.Topic, Partition: v.Partition}, Epoch: v.Epoch, From: from, To: to, Next: next, Policy: pipeline.Digest(v.Policy)}
	total := int64(0)
	for name, text := range v.Counts {
		n, ok := parseDecimal([]byte(text))
		d := dispositionOf(name)
		if !ok || n <= 0 || n > to-from || d == pipeline.Pending {
			return nil, "a count is not possible"
		}
		if total += n; total > to-from {
			return nil, "it counts more than its interval holds"
		}
		if d == pipeline.Delivered {
			s.nDeliver = n
			continue
		}
		set, ok := parseSet(v.Sets[name])
		if !ok || set.GetCardinality() != uint64(n) || int64(set.Minimum()) < from || set.Maximum() >= uint64(to) {
			return nil, "a bitmap disagrees with its count or its interval"
		}
		s.sets[d] = set
	}
	for name := range v.Sets {
		if _, counted := v.Counts[name]; !counted {
			return nil, "a bitmap has no count"
		}
	}
	for i, a := range settled {
		for _, b := range settled[i+1:] {
			if s.sets[a] != nil && s.sets[b] != nil && s.sets[a].Intersects(s.sets[b]) {
				return nil, "an offset has two dispositions"
			}
		}
	}
	return s, ""
}

func dispositionOf(name string) pipeline.Disposition {
	for d := pipeline.Delivered; d <= pipeline.Ranged; d++ {
		if d.String() == name {
			return d
		}
	}
	return pipeline.Pending
}

// parseSet unpacks one bitmap. The library checks its own lengths; a form that makes it panic is no bitmap either.
func parseSet(text string) (set *roaring64.Bitmap, ok bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 8 || len(b) > maxSet {
		return nil, false
	}
	// The library allocates for as many 32-bit bitmaps as the first 8 bytes say: each needs a key and 8 bytes at least.
	if binary.LittleEndian.Uint64(b) > uint64(len(b)-8)/12 {
		return nil, false
	}
	defer func() {
		if recover() != nil {
			set, ok = nil, false
		}
	}()
	set = roaring64.New()
	if n, err := set.ReadFrom(bytes.NewReader(b)); err != nil || n != int64(len(b)) || set.Validate() != nil || set.IsEmpty() {
		return nil, false
	}
	return set, true
}
