package engine

import (
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// Sealing says what leaves sealed. The zero value seals nothing: what cannot be redacted then stays in the source alone.
type Sealing struct {
	Sealer    pipeline.Sealer
	Topic     string             // of the vault; "" is none
	Letters   bool               // values of letters are sealed
	Originals bool               // what redaction changed is kept, sealed, in the vault
	Strip     pipeline.Sanitizer // takes verification values, and nothing else, out of what goes to the vault
	MaxBytes  int                // that a message of the vault topic may have; 0 is not known
}

// shape is how a letter is composed anew after a topic refused it as too large.
type shape struct {
	bare      bool // the letter without its value
	unvaulted bool // no vault message
}

// bareBytes is the most that a letter without its value may have: topics that take less than this are rare.
const bareBytes = 256 << 10

// aside tells whether what is too large for its topic goes to a fallback store: sealed, as all that is in the vault.
func (c *core) aside() bool { return c.o.Fallback != nil && c.o.Seal.Topic != "" }

// quarantine composes what one failed record leaves: its letter, and a message for the vault if its bytes go there. Both are of one
// Sending. A bare letter has no value: it is too large for the topic, and its bytes are in the vault or in the source. What the topics
// do not take goes to the vault by way of the fallback store, if there is one. Both go there then, the bytes first: no letter is on its
// topic before the bytes that it names are durable.
func (c *core) quarantine(w *work, f *pipeline.Failure, d pipeline.Decision, now time.Time, s shape) {
	l, original := c.letter(w, f, d, now)
	var kept *pipeline.Message
	var err error
	aside := c.aside() && (s.bare || s.unvaulted)
	if aside && s.bare && original == nil && l.Value != nil { // the value that the letter would have had
		original, l.Faithful = &pipeline.Clean{Key: l.Key, Value: l.Value, Headers: l.Headers}, deadletter.Vault
	}
	if original != nil && (!s.unvaulted || aside) {
		if kept, err = c.vaulted(l, original, f.Index); err != nil {
			w.stalls(f, pipeline.CodeSealFailed, err)
			return
		}
		if limit := c.o.Seal.MaxBytes; limit > 0 && deadletter.Size(kept) > limit {
			if aside = c.aside(); !aside {
				kept = nil
			}
		}
	}
	if kept == nil && l.Faithful == deadletter.Vault {
		l.Kind, l.Faithful = deadletter.KindLetter, deadletter.Source
	}
	m := pipeline.Message{Topic: c.o.Route.QuarantineTopic, Partition: -1, From: f.Index}
	switch {
	case s.bare:
		l.Value, l.DigestRedacted = nil, pipeline.Digest(seal.SHA256(nil))
		if l.Faithful == deadletter.Inline {
			l.Faithful = deadletter.Source
		}
	case c.o.Seal.Letters && l.Value != nil:
		l.DigestRedacted = pipeline.Digest(c.o.Identity.Digest(l.Value)) // a plain one would tell short values from each other
		if l.Value, l.Enc, err = c.o.Seal.Sealer.Seal(deadletter.SealedTenant(l.Identity.Tenant), l.Value, []byte(l.Item)); err != nil {
			w.stalls(f, pipeline.CodeSealFailed, err) // fail closed: nothing leaves in clear that was to be sealed
			return
		}
	}
	err = deadletter.Append(&m, l, c.o.Route.Profiles, c.o.Ring)
	if s.bare && (pipeline.CodeOf(err) == pipeline.CodeTooLarge || deadletter.Size(&m) > bareBytes) {
		m.Headers = nil // a huge key or huge headers: the letter only points at its record
		err = deadletter.Append(&m, l.Pointer(), c.o.Route.Profiles, c.o.Ring)
	}
	if !s.bare && pipeline.CodeOf(err) == pipeline.CodeTooLarge {
		s.bare = true
		c.quarantine(w, f, d, now, s)
		return
	}
	if err != nil {
		w.stalls(f, pipeline.CodeRedactFailed, err)
		return
	}
	w.what[f.Index] = pipeline.DeadLettered
	if l.Kind == deadletter.KindSealed {
		w.what[f.Index] = pipeline.Sealed
	}
	if aside && kept != nil {
		w.aside = append(w.aside, f.Index)
		w.spare.Msgs = append(w.spare.Msgs, *kept, m)
		return
	}
	w.letters.Msgs = append(w.letters.Msgs, m)
	if kept != nil {
		w.letters.Msgs = append(w.letters.Msgs, *kept)
	}
}

// sanitize fills the letter with what may be shown of the record, from its source bytes. What cannot be redacted safely leaves
// nothing but a placeholder. It returns the bytes that go to the vault; nil is none.
//
// INV-DLQ-01: no record stays behind because it cannot be redacted.
func (c *core) sanitize(w *work, l *deadletter.Letter, i int, r *pipeline.Record, v pipeline.View) *pipeline.Clean {
	topic := w.batch.TP.Topic
	clean, err := c.o.Sanitize.Sanitize(topic, r, v)
	found := l.Conceal(c.o.Sanitize.Text, c.o.Identity.Digest)
	if err != nil {
		w.hidden = append(w.hidden, int32(i))
		l.Withhold(c.o.Sanitize, c.o.Identity.Digest, topic, r, found, pipeline.CodeOf(err))
		return c.original(topic, r, v, true)
	}
	l.Key, l.Value, l.Headers = clean.Key, clean.Value, clean.Headers
	l.DigestRedacted, l.Faithful = pipeline.Digest(seal.SHA256(clean.Value)), deadletter.Inline
	if !clean.Changed {
		return nil
	}
	l.Faithful = deadletter.Source
	if !c.o.Seal.Originals {
		return nil
	}
	o := c.original(topic, r, v, false)
	if o != nil {
		l.Faithful = deadletter.Vault
	}
	if v != nil {
		_ = v.Rebind(clean.Value) // it read this before
	}
	return o
}

// original is what the vault may keep of a record: all of it but verification values, which nobody may store. Nil: there is no
// vault, or one was found and could not be taken out. blind: nobody could look into the record, which is why it goes to the vault.
func (c *core) original(topic string, r *pipeline.Record, v pipeline.View, blind bool) *pipeline.Clean {
	if c.o.Seal.Topic == "" {
		return nil
	}
	clean, err := c.o.Seal.Strip.Sanitize(topic, r, v)
	if err != nil && v != nil {
		clean, err = c.o.Seal.Strip.Sanitize(topic, r, nil) // masked in place where the codec could not write it anew
	}
	switch {
	case err == nil:
		return &clean
	case blind && pipeline.CodeOf(err) == pipeline.CodeRedactFailed:
		return &pipeline.Clean{Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	return nil
}

// vaulted composes the vault message of a record.
func (c *core) vaulted(l *deadletter.Letter, o *pipeline.Clean, from int32) (*pipeline.Message, error) {
	m := &pipeline.Message{Topic: c.o.Seal.Topic, Partition: -1, From: from}
	if err := l.Keep(m, o, c.o.Seal.Sealer, c.o.Identity.Digest, c.o.Ring); err != nil {
		return nil, err
	}
	return m, nil
}
