package redrive

import (
	"context"
	"encoding/json"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/expr"
	"reprieve.dev/transforms"
)

// DryRun does everything but send: reads each item's bytes, repeats its repair, decodes and checks it, computes its partition,
// and looks at the destination. The report is stored with the manifest. Codes: ERR_PERMISSION_DENIED, ERR_MANIFEST_UNKNOWN,
// ERR_MANIFEST_DIGEST, ERR_REDRIVE_STATE, ERR_TOPIC_MISSING.
func (s *Service) DryRun(ctx context.Context, who custody.Actor, digest pipeline.Digest) (*Report, error) {
	o, err := s.open(ctx, who, custody.PermPlan, digest)
	if err != nil {
		return nil, s.refused(ctx, who, "dry-run", string(digest), "", err)
	}
	m := o.m
	switch o.row.State {
	case StatePlanned, StateDryRun, StateApproved:
	default:
		return nil, pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "it is %s", o.row.State)
	}
	t, err := s.target(m.Pipeline)
	if err != nil {
		return nil, err
	}
	if err := t.allows(m.Destination); err != nil {
		return nil, s.refused(ctx, who, "dry-run", string(digest), m.Tenant, err)
	}
	d := &dryRun{s: s, t: t, m: m, scratch: codec.NewScratch(), now: s.clock(), lib: map[string]transforms.Transform{}, items: map[pipeline.ID]string{}}
	d.r = &Report{Manifest: digest, Pipeline: m.Pipeline, Tenant: m.Tenant, At: stamp(d.now), Destination: m.Destination, Partitions: map[string]int64{}, Selected: m.Selection.Selected,
		Items: m.Selection.Count, CannotGo: map[string]Sample{}, Excluded: m.Selection.Excluded, Schemas: map[string]int64{}, Undecoded: map[string]int64{}, FailAgain: map[string]Sample{}, Missing: map[string]int64{}, Live: Load{Waiting: -1, PerSecond: -1}, Unmeasured: map[string]int64{},
		Canary: []pipeline.ID{}, Measures: []Measure{}, Notes: []string{}, Rate: m.Pace.Rate}
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	var lines []Line
	if err := s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		lines, err = readLines(tx, m, digest)
		return err
	}); err != nil {
		return nil, err
	}
	if err := m.verifyLines(digest, lines); err != nil {
		return nil, s.refused(ctx, who, "dry-run", string(digest), m.Tenant, err)
	}
	of := make([]traits, len(lines))
	for from := 0; from < len(lines); from += repairChunk {
		if err := d.chunk(ctx, lines[from:min(from+repairChunk, len(lines))], of[from:]); err != nil {
			return nil, err
		}
	}
	for _, i := range canarySet(lines, of, m.Canary.N) {
		d.r.Canary = append(d.r.Canary, lines[i].Item)
	}
	if _, d.r.Since, err = s.items.ReadSnapshot(ctx, who, m.Selection.Snapshot); err != nil {
		d.r.Since = -1 // only a hint
	}
	if d.r.Live, err = s.load(ctx, t, d.r.Rate); err != nil {
		d.note("the load of the live lane could not be seen: " + string(pipeline.CodeOf(err)))
	}
	d.finish()
	err = s.db.Write(ctx, func(tx *ledger.Tx) error {
		row, err := lockManifest(tx, digest)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE manifests SET dry_run = ?, dry_run_ms = ?, bytes = ? WHERE digest = ? AND tenant = ?", toJSON(d.r), tx.NowMS(), d.r.Bytes, digest, m.Tenant); err != nil {
			return err
		}
		if err := setTexts(tx, "measures", digest, m.Tenant, d.items); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: m.Tenant, Event: "redrive_dry_run", Actor: who.Subject,
			Detail: map[string]string{"manifest": string(digest), "would_send": decimal(d.r.WouldSend), "items": decimal(d.r.Items), "via": who.Via}})
		if row.State == StatePlanned {
			return row.to(tx, StateDryRun, "")
		}
		return nil
	})
	return d.r, err
}

// dryRun gathers a report.
type dryRun struct {
	s       *Service
	t       *Target
	m       *Manifest
	r       *Report
	now     time.Time
	dest    pipeline.TopicInfo
	sources map[string]int32 // source topic -> partitions; 0 is unknown
	scratch *codec.Scratch
	checks  *transforms.Checker
	sums    []*summed
	lib     map[string]transforms.Transform
	oldest  int64
	items   map[pipeline.ID]string        // measures of each item, as they are stored
	tried   []Trial                       // of the chunk in work
	there   map[pipeline.ID]custody.Bytes // of the chunk in work: the original bytes
	failed  map[pipeline.ID]error         // of the chunk in work: why they cannot be had
}

type summed struct {
	Measure
	num *expr.Measure
	sum expr.Quantity
}

func (d *dryRun) begin(ctx context.Context) error {
	log, err := d.s.logOf(d.t.Cluster)
	if err != nil {
		return err
	}
	if d.dest, err = log.Info(ctx, d.m.Destination); err != nil {
		return err
	}
	d.sources = map[string]int32{}
	for _, topic := range d.m.Source {
		if info, err := log.Info(ctx, topic); err == nil {
			d.sources[topic] = int32(len(info.Partitions))
		}
	}
	rules := d.t.Rules
	if d.m.Identity.Policy == identityNew {
		rules.MayChange = []string{"key", "event_id", "entity", "business_id", "token", "version"}
	}
	if d.checks, err = transforms.NewChecker(rules, d.t.Decoder); err != nil {
		return err
	}
	for _, m := range d.m.Measures {
		num, err := expr.Number(m.CEL)
		if err != nil {
			return pipeline.Errorf(pipeline.CodeManifestInvalid, m.Name, "the measure does not compile: %w", err)
		}
		d.sums = append(d.sums, &summed{Measure: m, num: num})
	}
	return nil
}

func (d *dryRun) chunk(ctx context.Context, lines []Line, of []traits) error {
	ids := make([]pipeline.ID, len(lines))
	for i := range lines {
		ids[i] = lines[i].Item
	}
	var items map[pipeline.ID]*custody.Item
	if err := d.s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		items, err = d.s.items.Load(tx, ids)
		return err
	}); err != nil {
		return err
	}
	var all []*custody.Item
	for i := range lines {
		if it := items[lines[i].Item]; it != nil && lines[i].Newer == "" {
			all = append(all, it)
		}
	}
	var err error
	if d.there, d.failed, err = d.s.originals(ctx, all); err != nil {
		return err
	}
	d.tried = d.tried[:0]
	for i := range lines {
		it := items[lines[i].Item]
		if it == nil {
			d.r.cannot(pipeline.CodeItemUnknown, lines[i].Item)
			continue
		}
		of[i].fingerprint = string(it.Fingerprint)
		if lines[i].Newer != "" {
			d.r.Superseded++
			continue
		}
		if err := d.item(ctx, it, &lines[i], &of[i]); err != nil {
			return err
		}
	}
	return d.trial(ctx)
}

// trial runs what would be sent through the pipeline's own stages: decoding, business rules, redaction, enriching, routing.
func (d *dryRun) trial(ctx context.Context) error {
	if d.t.Trial == nil || len(d.tried) == 0 {
		return nil
	}
	codes, err := d.t.Trial(ctx, d.tried)
	if err != nil {
		return err
	}
	for i, code := range codes {
		if code != "" {
			note(d.r.FailAgain, code, d.tried[i].Item)
		}
	}
	return nil
}

// item looks at one item. Only what makes the whole dry run impossible is an error.
func (d *dryRun) item(ctx context.Context, it *custody.Item, l *Line, of *traits) error {
	r := d.r
	code := it.Redrivable()
	if code == pipeline.CodeItemUnconfirmed && d.m.Unconfirmed == accepted && it.Confirmed == custody.SourceUnknown {
		code = ""
	}
	if code != "" {
		r.cannot(code, it.ID)
		return nil
	}
	b, err := d.bytes(ctx, it, l)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		r.cannot(pipeline.CodeOf(err), it.ID)
		return nil
	}
	of.partition = Partition(b.Key, int32(len(d.dest.Partitions)), it.Original.Partition)
	if l.Repair != "" {
		r.Repaired++
		e := envelopeOf(it, &b)
		res := transforms.Result{Key: b.Key, Value: b.Value, Headers: b.Headers}
		if f := d.checks.Check(ctx, &e, &res); f != nil {
			r.cannot(f.Code, it.ID)
			return nil
		}
	}
	switch {
	case b.Key == nil && d.dest.Compacted:
		r.cannot(pipeline.CodeSendKeyless, it.ID) // the broker would refuse it for good
		return nil
	case tooFar(it, d.now):
		r.cannot(pipeline.CodeRedriveTime, it.ID)
		return nil
	case d.t.unreadable(ctx, d.scratch, &b):
		r.cannot(pipeline.CodeSchemaUnknown, it.ID)
		return nil
	case b.Value == nil:
		r.Deletes++
	}
	if b.Key == nil {
		r.Keyless++
	} else if n := d.sources[it.Original.Topic]; n > 0 && Partition(b.Key, n, 0) != it.Original.Partition {
		r.Repartition++
	}
	if it.OriginalMS > 0 && it.TimeType != pipeline.TimeNone {
		if d.oldest == 0 || it.OriginalMS < d.oldest {
			d.oldest = it.OriginalMS
		}
		if d.dest.RetentionMS >= 0 && d.now.UnixMilli()-it.OriginalMS > d.dest.RetentionMS {
			r.Old++
		}
	} else if it.TimeType != pipeline.TimeNone {
		d.note("some records have a time at or before 1970: it travels in a header, the message is written with the present time")
	}
	size := int64(len(b.Key) + len(b.Value))
	for _, h := range b.Headers {
		size += int64(len(h.Name) + len(h.Value))
	}
	if d.dest.MaxMessage > 0 && size+1024 > d.dest.MaxMessage { // the trail takes about a KiB
		r.cannot(pipeline.CodeTooLarge, it.ID)
		return nil
	}
	r.Bytes += size
	r.WouldSend++
	d.history(it, l)
	d.tried = append(d.tried, Trial{Item: it.ID, Original: it.Original, Identity: it.Identity, Bytes: b})
	r.Partitions[decimal(int64(of.partition))]++
	d.view(ctx, it.ID, &b)
	return nil
}

// history counts what is known of an item's effect.
func (d *dryRun) history(it *custody.Item, l *Line) {
	r := d.r
	if l.Ask {
		r.Asked++
	}
	if it.Try > 0 {
		r.Again++
	}
	b := &brief{originalMS: it.OriginalMS, timeType: it.TimeType, takenMS: it.TakenMS, lastMS: it.LastSeenMS}
	switch {
	case !d.t.Horizon.Known:
		r.Horizon.Unknown++
	case d.t.Horizon.past(b, d.now.UnixMilli()):
		r.Horizon.Past++
	default:
		r.Horizon.Within++
	}
}

// tooFar tells whether a record's own time cannot be one: seconds taken for milliseconds lie decades ago.
func tooFar(it *custody.Item, now time.Time) bool {
	if it.TimeType != pipeline.TimeCreate || it.OriginalMS <= 0 {
		return false
	}
	const tenYears = 3653 * 24 * time.Hour
	age := now.Sub(time.UnixMilli(it.OriginalMS))
	return age > tenYears || age < -tenYears
}

// bytes reads what would be sent, and repeats its repair bit for bit from the original bytes.
func (d *dryRun) bytes(ctx context.Context, it *custody.Item, l *Line) (b custody.Bytes, err error) {
	if l.Repair == "" {
		if b, err = d.there[it.ID], d.failed[it.ID]; err == nil && pipeline.Digest(d.s.id.Digest(b.Value)) != l.Digest {
			err = pipeline.Errorf(pipeline.CodePayloadUnfaithful, string(it.ID), "its bytes are not those that were planned")
		}
		return b, err
	}
	var stored *custody.StoredRepair
	if err = d.s.db.Read(ctx, func(tx *ledger.Tx) error {
		b, stored, err = d.s.items.RepairedBytes(tx, it)
		return err
	}); err != nil {
		return b, err
	}
	if it.Repair != l.Repair || stored.After != l.Digest {
		return b, pipeline.Errorf(pipeline.CodeStateChanged, string(it.ID), "its repair changed since the plan")
	}
	return b, d.repeat(ctx, it, stored)
}

// repeat makes the repair again: a transform that gives other bytes than before must not be trusted.
func (d *dryRun) repeat(ctx context.Context, it *custody.Item, stored *custody.StoredRepair) error {
	ref := stored.Transform + "@" + stored.Version
	if d.t.Library == nil {
		d.note("the repairs could not be repeated: no transforms are configured here")
		return nil
	}
	key := ref + "\x00" + stored.Config
	tr := d.lib[key]
	if tr == nil {
		var err error
		if tr, err = d.t.Library.Parse(ref, []byte(stored.Config)); err != nil {
			d.note("some repairs could not be repeated: " + ref + " is not here")
			return nil
		}
		d.lib[key] = tr
	}
	var lineage transforms.Lineage
	if err := json.Unmarshal([]byte(stored.Report), &lineage); err != nil {
		return pipeline.Errorf(pipeline.CodeLedgerCorrupt, string(it.ID), "the lineage of its repair cannot be read")
	}
	original, ok := d.there[it.ID]
	if !ok {
		d.note("some repairs could not be repeated: their original bytes are gone")
		return nil
	}
	e := envelopeOf(it, &original)
	_, err := lineage.Repeat(ctx, tr, &e, d.s.id)
	return err
}

// view decodes what would be sent, counts schemas and adds up measures.
func (d *dryRun) view(ctx context.Context, id pipeline.ID, b *custody.Bytes) {
	if d.t.Decoder == nil || b.Value == nil {
		return
	}
	d.scratch.Reset()
	v, f := d.t.Decoder.Decode(ctx, d.scratch, b.Value, b.Headers)
	if f != nil {
		d.r.Undecoded[string(f.Code)]++
		return
	}
	d.r.Schemas[v.Schema().String()]++
	var of map[string]string
	for _, m := range d.sums {
		q, ok, err := m.num.Eval(v)
		if err != nil || !ok {
			d.r.Unmeasured[m.Name]++
			continue
		}
		m.sum = m.sum.Add(q)
		if of == nil {
			of = map[string]string{}
		}
		of[m.Name] = q.String()
	}
	if of != nil {
		d.items[id] = toJSON(of)
	}
}
