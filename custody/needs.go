package custody

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// Need is something that an open item cannot be worked on without. Each ends by itself, whatever the retention of the item says.
type Need string

// The needs.
const (
	NeedPayload Need = "payload" // what the ledger holds of it, until its retention ends
	NeedSource  Need = "source"  // its faithful bytes, where they stand in the source alone
	NeedKey     Need = "key"     // the private key of what is sealed
	NeedSchema  Need = "schema"  // the schema that its bytes are written in
)

// NeedEnd says of open items of one owner and pipeline which need of theirs ends before all others, and when.
type NeedEnd struct {
	Need     Need   `json:"need"`
	Subject  string `json:"subject,omitempty"` // the topic, the key or the schema
	Cluster  string `json:"cluster,omitempty"` // of the topic
	Tenant   string `json:"tenant"`
	Owner    string `json:"owner"`
	Pipeline string `json:"pipeline"`
	Items    int64  `json:"items,string"`
	// FirstMS is when it ends for the first of them; 0: it is gone, or may go at any time.
	FirstMS int64         `json:"first_ms,string"`
	Gone    bool          `json:"gone"`
	Code    pipeline.Code `json:"code"`
	Text    string        `json:"text"`
	Example pipeline.ID   `json:"example"` // the first of them
}

// Unchecked is a need that could not be looked up: nothing is said of the items that have it.
type Unchecked struct {
	Need    Need          `json:"need"`
	Subject string        `json:"subject"`
	Code    pipeline.Code `json:"code"`
	Text    string        `json:"text"`
}

// Needs is the answer of Items.Needs.
type Needs struct {
	Ends      []NeedEnd   `json:"ends"`      // what is gone first, then by time
	Unchecked []Unchecked `json:"unchecked"` // brokers and registries that did not answer
}

// Needs finds the open items whose source, key or schema ends before their payload does, and those whose payload ends first and within
// the warning time of r: by what ends, tenant, owner and pipeline. It asks the clusters of items how long their topics keep what is
// there, and the registries of pipelines for the schemas (Options.Source, Options.Schemas); what does not answer is listed. When a topic
// drops something by its size nobody can foretell: it may be at any time. tenant is "" for all that the actor may see. Codes:
// ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_LEDGER_*. Cost: one walk over the open items, one question for each topic and each
// schema of theirs.
func (c *Items) Needs(ctx context.Context, who Actor, r Retention, tenant string) (Needs, error) {
	if err := c.Check(ctx, who, PermRead, tenant); err != nil {
		return Needs{}, err
	}
	w := needWalk{c: c, r: r, nowMS: c.clock().UnixMilli(), topics: map[topicKey]topicAnswer{}, down: map[string]error{}, schemas: map[schemaKey]schemaAnswer{},
		ends: map[needKey]*NeedEnd{}, silent: map[Unchecked]bool{}}
	for after := ""; ; {
		list, err := w.read(ctx, who, tenant, after)
		if err != nil {
			return Needs{}, err
		}
		for i := range list {
			if err := w.look(ctx, &list[i]); err != nil {
				return Needs{}, err
			}
		}
		if len(list) < needChunk {
			return w.answer(), nil
		}
		after = string(list[len(list)-1].ID)
	}
}

// needChunk is how many items are read at once: questions to brokers and registries are asked between reads, never within one.
const needChunk = 2000

// needing is what of an open item says what it needs.
type needing struct {
	Item
	vault  pipeline.Digest // of its record in the vault, "" if it has none
	enc    string          // of that record
	lost   string          // the key that cannot open it, if there is such a one
	broken bool            // that key was destroyed, not only unknown
}

type (
	topicKey     struct{ cluster, topic string }
	schemaKey    struct{ pipeline, schema string }
	schemaAnswer struct {
		known bool
		err   error
	}
	topicAnswer struct {
		info pipeline.TopicInfo
		err  error
	}
	needKey struct {
		need                                      Need
		subject, cluster, tenant, owner, pipeline string
		code                                      pipeline.Code
		text                                      string
	}
)

type needWalk struct {
	c       *Items
	r       Retention
	nowMS   int64
	topics  map[topicKey]topicAnswer
	down    map[string]error // clusters that cannot be reached
	schemas map[schemaKey]schemaAnswer
	ends    map[needKey]*NeedEnd
	silent  map[Unchecked]bool
}

// read reads the next open items, with the keys that they need and the ledger does not have.
func (w *needWalk) read(ctx context.Context, who Actor, tenant, after string) (list []needing, err error) {
	err = w.c.db.Read(ctx, func(tx *ledger.Tx) error {
		list = nil
		cond, args := w.c.roles.visible(tx, who, "i.tenant")
		if tenant != "" {
			cond += " AND i.tenant = ?"
			args = append(args, tenant)
		}
		may, more := w.mayNeed(tx)
		cond, args = cond+" AND "+may, append(slices.Clone(args), more...)
		kids := map[string]bool{}
		if err := tx.Each(`SELECT i.id, i.tenant, i.owner, i.pipeline, i.class, i.code, i.cluster, i.topic, i.partition, i.source_offset, i.original_ms, i.at_topic, i.at_partition, i.at_offset,
			i.quarantined_ms, coalesce(i.last_seen_ms, i.quarantined_ms), coalesce(i.expires_ms, 0), i.legal_hold, i.schema_ref, i.faithful, i.digest_faithful, i.enc, coalesce(i.data_class, ''), coalesce(i.keep_ms, 0), v.digest, v.enc
			FROM items i LEFT JOIN vault v ON v.item = i.id WHERE `+cond+" AND i.state IN "+openStates+" AND i.id > ? ORDER BY i.id LIMIT "+strconv.Itoa(needChunk), append(args, after), func(scan func(...any) error) error {
			var n needing
			var class, atTopic string
			var atPartition *int32
			var atOffset *int64
			var vaultDigest, vaultEnc *string
			err := scan(&n.ID, &n.Tenant, &n.Owner, &n.Pipeline, &class, &n.Code, &n.Cluster, &n.Original.Topic, &n.Original.Partition, &n.Original.Offset, &n.OriginalMS, &atTopic, &atPartition, &atOffset,
				&n.QuarantinedMS, &n.LastSeenMS, &n.ExpiresMS, &n.LegalHold, &n.Schema, &n.Faithful, (*StoredDigest)(&n.DigestFaithful), &n.Enc, &n.Data, &n.KeepMS, &vaultDigest, &vaultEnc)
			n.Class, _ = pipeline.ParseClass(class)
			if n.At = n.Original; atTopic != "" {
				n.At = pipeline.Position{TP: pipeline.TP{Topic: atTopic, Partition: deref(atPartition)}, Offset: deref(atOffset)}
			}
			n.vault, n.enc = pipeline.Digest(deref(vaultDigest)), deref(vaultEnc)
			for _, kid := range n.kids() {
				kids[kid] = true
			}
			list = append(list, n)
			return err
		}); err != nil || len(kids) == 0 {
			return err
		}
		return missingKeys(tx, slices.Sorted(maps.Keys(kids)), list)
	})
	return list, err
}

// mayNeed leaves to the ledger what needs nothing for certain: bytes that stand in the ledger alone, open, for longer than anybody is
// warned, in a schema that was asked for and is there. Of very many items these are most.
func (w *needWalk) mayNeed(tx *ledger.Tx) (string, []any) {
	shortest := w.r.shortest().Milliseconds()
	cond := `(i.faithful <> 'inline' OR i.enc <> '' OR v.item IS NOT NULL
		OR coalesce(i.expires_ms, i.quarantined_ms + CASE WHEN i.keep_ms < ? THEN i.keep_ms ELSE ? END) <= ?`
	args := []any{shortest, shortest, w.nowMS + w.r.warning().Milliseconds()}
	if w.c.schemas == nil {
		return cond + ")", args
	}
	var there []string
	for k, a := range w.schemas {
		if a.known || a.err != nil { // what could not be asked was said
			there = append(there, k.pipeline+"\n"+k.schema)
		}
	}
	in, arg := tx.In("i.pipeline || '\n' || i.schema_ref", there)
	return cond + " OR i.schema_ref LIKE '%:%' AND i.code <> ? AND NOT (" + in + "))", append(args, pipeline.CodeSchemaUnknown, arg)
}

// kids are the keys that the sealed bytes of an item need.
func (n *needing) kids() (out []string) {
	for _, enc := range [...]string{n.Enc, n.enc} {
		if rest, ok := strings.CutPrefix(enc, "hpke1;"); ok {
			kid, _, _ := strings.Cut(rest, ";")
			out = append(out, kid)
		}
	}
	return out
}

// missingKeys notes which of these items need a key that the ledger does not have. Versions that were rotated out are kept, so they open
// what was sealed to them: only what was destroyed, or never was here, is missing.
func missingKeys(tx *ledger.Tx, kids []string, list []needing) error {
	type key struct{ tenant, kid string }
	have, destroyed := map[key]bool{}, map[key]bool{}
	read := func(q, column string, into map[key]bool) error {
		in, arg := tx.In(column, kids)
		return tx.Each(q+in, []any{arg}, func(scan func(...any) error) error {
			var k key
			err := scan(&k.tenant, &k.kid)
			if strings.HasPrefix(k.tenant, ownerless) {
				k.tenant = "" // a pipeline's opens what it sealed, whoever's it is
			}
			into[k] = true
			return err
		})
	}
	if err := firstOf(read("SELECT tenant, id FROM tenant_keys WHERE ", "id", have),
		read("SELECT tenant, subject FROM erasure_log WHERE kind = 'key' AND ", "subject", destroyed)); err != nil {
		return err
	}
	for i := range list {
		n := &list[i]
		for _, kid := range n.kids() {
			if !have[key{n.Tenant, kid}] && !have[key{"", kid}] {
				n.lost, n.broken = kid, destroyed[key{n.Tenant, kid}]
			}
		}
	}
	return nil
}

// end is when a need of one item ends.
type end struct {
	need             Need
	subject, cluster string
	gone, anyTime    bool
	atMS             int64
	code             pipeline.Code
	text             string
}

// order is that of ends: what is gone, what may go at any time, then by time.
func (e end) order() int64 {
	switch {
	case e.gone:
		return -2
	case e.anyTime:
		return -1
	}
	return e.atMS
}

// look finds which need of an item ends first. What ends with its payload, or later, ends in time.
func (w *needWalk) look(ctx context.Context, n *needing) error {
	first, ends := end{}, false
	if at := w.r.EndMS(&n.Item); at != 0 {
		first, ends = end{need: NeedPayload, atMS: at, code: pipeline.CodeRetentionEnding, text: "the retention of the items ends"}, true
	}
	sooner := func(e end, ok bool) {
		if ok && (!ends || e.order() < first.order()) {
			first, ends = e, true
		}
	}
	if n.lost != "" {
		e := end{need: NeedKey, subject: n.lost, gone: true, code: pipeline.CodeKeyUnknown, text: "the ledger does not have the key that the items are sealed to"}
		if n.broken {
			e.code, e.text = pipeline.CodeKeyDestroyed, "the key that the items are sealed to was destroyed"
		}
		sooner(e, true)
	}
	e, ok, err := w.schema(ctx, n)
	if err != nil {
		return err
	}
	sooner(e, ok)
	// What the vault has whole does not need the source; what redaction did not change does not either.
	if n.Faithful == deadletter.Source || n.Faithful == deadletter.Vault && n.vault != n.DigestFaithful {
		e, ok, err := w.source(ctx, n)
		if err != nil {
			return err
		}
		sooner(e, ok)
	}
	if ends && (first.need != NeedPayload || first.atMS <= w.nowMS+w.r.warning().Milliseconds()) {
		w.count(n, first)
	}
	return nil
}

func (w *needWalk) count(n *needing, e end) {
	k := needKey{e.need, e.subject, e.cluster, n.Tenant, n.Owner, n.Pipeline, e.code, e.text}
	sum := w.ends[k]
	if sum == nil {
		sum = &NeedEnd{Need: e.need, Subject: e.subject, Cluster: e.cluster, Tenant: n.Tenant, Owner: n.Owner, Pipeline: n.Pipeline, FirstMS: e.atMS, Gone: e.gone, Code: e.code, Text: e.text, Example: n.ID}
		w.ends[k] = sum
	}
	sum.Items++
	if e.atMS < sum.FirstMS {
		sum.FirstMS, sum.Example = e.atMS, n.ID
	}
}

func (w *needWalk) answer() Needs {
	out := Needs{Ends: []NeedEnd{}, Unchecked: slices.SortedFunc(maps.Keys(w.silent), func(a, b Unchecked) int {
		return cmp.Or(cmp.Compare(a.Need, b.Need), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Text, b.Text))
	})}
	if out.Unchecked == nil {
		out.Unchecked = []Unchecked{}
	}
	for _, e := range w.ends {
		out.Ends = append(out.Ends, *e)
	}
	rank := func(e NeedEnd) int64 { return end{gone: e.Gone, anyTime: e.FirstMS == 0, atMS: e.FirstMS}.order() }
	slices.SortFunc(out.Ends, func(a, b NeedEnd) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Need, b.Need), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Pipeline, b.Pipeline), cmp.Compare(a.Example, b.Example))
	})
	return out
}

// schema asks whether the registry still has the schema that an item was written in. One that failed because nobody knows its schema has
// nothing that could end.
func (w *needWalk) schema(ctx context.Context, n *needing) (end, bool, error) {
	if w.c.schemas == nil || !strings.Contains(n.Schema, ":") || n.Code == pipeline.CodeSchemaUnknown {
		return end{}, false, nil
	}
	k := schemaKey{n.Pipeline, n.Schema}
	a, asked := w.schemas[k]
	if !asked {
		a.known, a.err = w.c.schemas(ctx, n.Pipeline, n.Schema)
		if err := ctx.Err(); err != nil {
			return end{}, false, err
		}
		w.schemas[k] = a
	}
	if a.err != nil {
		w.unchecked(NeedSchema, n.Schema, a.err)
	}
	return end{need: NeedSchema, subject: n.Schema, gone: true, code: pipeline.CodeSchemaUnknown, text: "the registry does not have the schema of the items any more"}, a.err == nil && !a.known, nil
}

// source asks how long the source keeps the record of an item: where it first stood, or where its last pass read it (as Faithful looks
// for it), whichever lasts longer.
func (w *needWalk) source(ctx context.Context, n *needing) (end, bool, error) {
	last, ends, err := w.place(ctx, n, n.Original, n.OriginalMS)
	if err != nil || !ends || n.At == n.Original {
		return last, ends, err
	}
	other, ends, err := w.place(ctx, n, n.At, n.LastSeenMS)
	if ends && other.order() < last.order() {
		other = last
	}
	return other, ends, err
}

// place is when the record at a position may go. False: never, or nobody can tell.
func (w *needWalk) place(ctx context.Context, n *needing, at pipeline.Position, writtenMS int64) (end, bool, error) {
	k := topicKey{n.Cluster, at.Topic}
	a, asked := w.topics[k]
	if !asked {
		a.info, a.err = w.topic(ctx, k)
		if err := ctx.Err(); err != nil {
			return end{}, false, err
		}
		w.topics[k] = a
	}
	e := end{need: NeedSource, subject: at.Topic, cluster: n.Cluster, gone: true, code: pipeline.CodePayloadMissing}
	if pipeline.CodeOf(a.err) == pipeline.CodeTopicMissing {
		e.text = "the topic that holds the source's bytes is gone"
		return e, true, nil
	}
	if a.err != nil {
		w.unchecked(NeedSource, at.Topic, a.err)
		return end{}, false, nil
	}
	held, there := a.info.Partitions[at.Partition]
	switch {
	case !there || at.Offset >= held.Next:
		e.text = "the topic was made anew: the source's bytes are not in it"
		return e, true, nil
	case at.Offset < held.First:
		e.text = "the topic has dropped the source's bytes"
		return e, true, nil
	}
	e.gone, e.code = false, pipeline.CodeRetentionOutlived
	switch {
	case a.info.Compacted:
		e.anyTime, e.text = true, "the topic is compacted: the source's bytes may go at any time"
	case a.info.RetentionMS < 0 && a.info.KeepBytes < 0:
		return end{}, false, nil
	case a.info.RetentionMS >= 0 && writtenMS+a.info.RetentionMS <= w.nowMS:
		e.anyTime, e.text = true, "the topic may drop the source's bytes at any time: it has kept them for "+days(a.info.RetentionMS)
	case a.info.KeepBytes >= 0 && (a.info.RetentionMS < 0 || writtenMS+a.info.RetentionMS > w.nowMS+w.r.warning().Milliseconds()):
		// Nobody knows how soon others fill it; what is sure to end soon is said as that.
		e.anyTime, e.text = true, "the topic keeps "+strconv.FormatInt(a.info.KeepBytes, 10)+" bytes of a partition (retention.bytes): the source's bytes may go at any time"
	default:
		e.atMS, e.text = writtenMS+a.info.RetentionMS, "the topic keeps the source's bytes for "+days(a.info.RetentionMS)+" only"
	}
	return e, true, nil
}

func (w *needWalk) topic(ctx context.Context, k topicKey) (pipeline.TopicInfo, error) {
	if err := w.down[k.cluster]; err != nil {
		return pipeline.TopicInfo{}, err
	}
	log, ok := w.c.source(k.cluster)
	if !ok {
		return pipeline.TopicInfo{}, pipeline.Errorf(pipeline.CodeConfigReference, k.cluster, "the source cluster %q cannot be asked from here", k.cluster)
	}
	info, err := log.Info(ctx, k.topic)
	if pipeline.CodeOf(err) == pipeline.CodeBrokerUnreachable {
		w.down[k.cluster] = err // each more topic of it would wait as long
	}
	return info, err
}

func (w *needWalk) unchecked(need Need, subject string, err error) {
	w.silent[Unchecked{need, subject, pipeline.CodeOf(err), err.Error()}] = true
}

// days writes a time as settings do.
func days(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	return d.String()
}
