package redrive

import (
	"bytes"
	"context"
	"slices"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// maxApproval is how long an approval may be valid.
const maxApproval = 7 * 24 * time.Hour

// Approval is a signed statement over a manifest's digest.
type Approval struct {
	ID        string          `json:"id,omitempty"`
	Manifest  pipeline.Digest `json:"manifest"`
	Subject   string          `json:"subject"`
	Role      string          `json:"role"`
	Expires   string          `json:"expires"` // RFC 3339, UTC, milliseconds
	Rate      string          `json:"rate"`    // most that the run may send, as in 50/s
	KID       string          `json:"kid"`
	Signature []byte          `json:"signature,omitempty"`
	At        string          `json:"at,omitempty"`
	Revoked   string          `json:"revoked,omitempty"`
}

// Text is what is signed: canonical JSON of what the approval says, with its purpose, so that no other statement can be taken
// for it.
func (a *Approval) Text() []byte {
	b, err := seal.Canonical(map[string]any{"v": 1, "kind": "redrive_approval", "manifest": string(a.Manifest), "subject": a.Subject,
		"role": a.Role, "expires": a.Expires, "rate": a.Rate, "kid": a.KID})
	if err != nil {
		return nil // only strings that are no UTF-8: such a text verifies nowhere
	}
	return b
}

// Sign makes an approval with a person's own key.
func Sign(key *seal.Signer, manifest pipeline.Digest, role string, rate Rate, expires time.Time) Approval {
	a := Approval{Manifest: manifest, Subject: key.Subject(), Role: role, Expires: stamp(expires), Rate: rate.String(), KID: key.KeyID()}
	a.Signature = key.Sign(a.Text())
	return a
}

// verify checks everything about an approval that does not need the ledger. Codes: ERR_APPROVAL_INVALID, ERR_APPROVAL_SELF,
// ERR_APPROVAL_EXPIRED, ERR_REDRIVE_RATE.
func (s *Service) verify(a *Approval, m *Manifest, digest pipeline.Digest) error {
	place := string(digest)
	if a.Subject == "" || a.Subject == m.Requester {
		return pipeline.Errorf(pipeline.CodeApprovalSelf, place, "%s asked for this redrive and cannot approve it", a.Subject)
	}
	if a.Manifest != digest {
		return pipeline.Errorf(pipeline.CodeApprovalInvalid, place, "the approval is for another manifest")
	}
	expires, err := s.signer(place, a.KID, a.Subject, a.Role, a.Expires, a.Text(), a.Signature)
	if err != nil {
		return err
	}
	if !s.clock().Before(expires) {
		return pipeline.Errorf(pipeline.CodeApprovalExpired, place, "it expired at %s", a.Expires)
	}
	rate, err := ParseRate(a.Rate)
	if err != nil {
		return err
	}
	if want, err := ParseRate(m.Pace.Rate); err != nil || rate < want {
		return pipeline.Errorf(pipeline.CodeRedriveRate, place, "it approves %s and the manifest asks for %s", a.Rate, m.Pace.Rate).
			With("Approve " + m.Pace.Rate + ", or let it be planned again with --rate " + a.Rate + ".")
	}
	return nil
}

// Approve stores an approval. who is the authenticated caller: for a person's own key it must be the subject. Codes:
// ERR_PERMISSION_DENIED, ERR_MANIFEST_UNKNOWN, ERR_DRY_RUN_REQUIRED, ERR_REDRIVE_STATE, ERR_APPROVAL_SELF,
// ERR_APPROVAL_INVALID, ERR_APPROVAL_EXPIRED, ERR_REDRIVE_RATE. Every refusal is audited.
func (s *Service) Approve(ctx context.Context, who custody.Actor, a Approval) error {
	run, err := s.open(ctx, who, custody.PermApprove, a.Manifest)
	if err != nil {
		return s.refused(ctx, who, "approve", string(a.Manifest), "", err)
	}
	m := run.m
	err = s.verify(&a, m, run.digest)
	expires, _ := time.Parse(time.RFC3339, a.Expires)
	switch {
	case err != nil:
	case a.Subject != who.Subject:
		err = pipeline.Errorf(pipeline.CodeApprovalInvalid, string(run.digest), "%s cannot hand in an approval of %s", who.Subject, a.Subject)
	case !slices.Contains(who.Roles, a.Role):
		err = pipeline.Errorf(pipeline.CodeApprovalInvalid, string(run.digest), "%s does not act as %s", who.Subject, a.Role)
	case expires.Sub(s.clock()) > maxApproval:
		err = pipeline.Errorf(pipeline.CodeApprovalInvalid, string(run.digest), "an approval lasts 7 days at most")
	}
	if err != nil {
		return s.refused(ctx, who, "approve", string(run.digest), m.Tenant, err)
	}
	err = s.db.Write(ctx, func(tx *ledger.Tx) error {
		row, err := lockManifest(tx, run.digest)
		if err != nil {
			return err
		}
		switch row.State {
		case StateDryRun, StateApproved:
		case StatePlanned:
			return pipeline.Errorf(pipeline.CodeDryRunRequired, string(run.digest), "nobody has seen what it would do")
		default:
			return pipeline.Errorf(pipeline.CodeRedriveState, string(run.digest), "it is %s", row.State)
		}
		if err := unused(tx, "redrive", string(run.digest), m.Tenant, a.Signature); err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO approvals (id, tenant, kind, digest, subject, role, rate, expires_ms, kid, signature, at_ms, denied, reason, revoked_ms, revoked_by)
			VALUES (?, ?, 'redrive', ?, ?, ?, ?, ?, ?, ?, ?, 0, '', 0, '')`,
			randomID("a"), m.Tenant, run.digest, a.Subject, a.Role, a.Rate, expires.UnixMilli(), a.KID, a.Signature, tx.NowMS()); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Tenant: m.Tenant, Event: "redrive_approved", Actor: a.Subject, Evidence: a.Signature,
			Detail: map[string]string{"manifest": string(run.digest), "role": a.Role, "rate": a.Rate, "expires": a.Expires, "kid": a.KID, "via": who.Via}})
		return row.to(tx, StateApproved, "")
	})
	return s.refused(ctx, who, "approve", string(run.digest), m.Tenant, err)
}

// unused refuses a signature that was handed in before: a statement counts once, so one that was revoked does not come back. The
// caller has locked what the statement is about.
func unused(tx *ledger.Tx, kind, digest, tenant string, sig []byte) error {
	used := false
	err := tx.Each("SELECT signature FROM approvals WHERE digest = ? AND tenant = ? AND kind = ?", []any{digest, tenant, kind}, func(scan func(...any) error) error {
		var old []byte
		err := scan(&old)
		used = used || bytes.Equal(old, sig)
		return err
	})
	if err == nil && used {
		err = pipeline.Errorf(pipeline.CodeApprovalInvalid, digest, "this signature was handed in before: each counts once").With("Sign anew.")
	}
	return err
}

// Deny refuses a manifest for good. Codes: ERR_PERMISSION_DENIED, ERR_REASON_MISSING, ERR_REDRIVE_STATE.
func (s *Service) Deny(ctx context.Context, who custody.Actor, digest pipeline.Digest, reason string) error {
	run, err := s.open(ctx, who, custody.PermApprove, digest)
	if err == nil && reason == "" {
		err = pipeline.Errorf(pipeline.CodeReasonMissing, string(digest), "a denial needs a reason")
	}
	if err != nil {
		return s.refused(ctx, who, "deny", string(digest), "", err)
	}
	err = s.db.Write(ctx, func(tx *ledger.Tx) error {
		row, err := lockManifest(tx, digest)
		if err != nil {
			return err
		}
		switch row.State {
		case StatePlanned, StateDryRun, StateApproved:
		case StateStopped: // what it did has an end; what it did not send is free for another plan
			c, err := counts(tx, digest, run.m.Tenant)
			if err != nil {
				return err
			}
			if n := c.Sending + c.Sent + c.Forwarded; n > 0 {
				return pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "of %d items that were sent it is not known what became", n).With("Wait, or answer for them; see reprieve redrive status.")
			}
		default:
			return pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "it is %s", row.State)
		}
		tx.Append(ledger.Entry{Tenant: run.m.Tenant, Event: "redrive_denied", Actor: who.Subject,
			Detail: map[string]string{"manifest": string(digest), "reason": reason, "via": who.Via}})
		return row.to(tx, StateDenied, reason)
	})
	return s.refused(ctx, who, "deny", string(digest), run.m.Tenant, err)
}

// Revoke takes all approvals of a manifest back: a run that has begun sends no further chunk. Codes: ERR_PERMISSION_DENIED,
// ERR_REASON_MISSING, ERR_APPROVAL_MISSING.
func (s *Service) Revoke(ctx context.Context, who custody.Actor, digest pipeline.Digest, reason string) error {
	run, err := s.open(ctx, who, custody.PermApprove, digest)
	if err == nil && reason == "" {
		err = pipeline.Errorf(pipeline.CodeReasonMissing, string(digest), "a revocation needs a reason")
	}
	if err != nil {
		return s.refused(ctx, who, "revoke", string(digest), "", err)
	}
	err = s.db.Write(ctx, func(tx *ledger.Tx) error {
		row, err := lockManifest(tx, digest)
		if err != nil {
			return err
		}
		n, err := tx.Exec("UPDATE approvals SET revoked_ms = ?, revoked_by = ? WHERE digest = ? AND tenant = ? AND kind = 'redrive' AND revoked_ms = 0",
			tx.NowMS(), who.Subject, digest, run.m.Tenant)
		if err != nil {
			return err
		}
		if n == 0 {
			return pipeline.Errorf(pipeline.CodeApprovalMissing, string(digest), "there is no approval to revoke")
		}
		tx.Append(ledger.Entry{Tenant: run.m.Tenant, Event: "redrive_revoked", Actor: who.Subject,
			Detail: map[string]string{"manifest": string(digest), "reason": reason, "via": who.Via}})
		if row.State == StateApproved {
			return row.to(tx, StateDryRun, "")
		}
		return nil
	})
	return s.refused(ctx, who, "revoke", string(digest), run.m.Tenant, err)
}

// approved finds an approval that is valid now (INV-APPROVED): it verifies the signature again, so that a row which somebody
// wrote into the ledger counts for nothing. Codes: ERR_APPROVAL_MISSING, or the code of the last approval that failed.
func (s *Service) approved(tx *ledger.Tx, m *Manifest, digest pipeline.Digest) (*Approval, error) {
	var found *Approval
	subjects := map[string]bool{}
	reason := pipeline.Errorf(pipeline.CodeApprovalMissing, string(digest), "nobody has approved it")
	err := tx.Each(`SELECT id, subject, role, rate, expires_ms, kid, signature, revoked_ms, revoked_by FROM approvals
		WHERE digest = ? AND tenant = ? AND kind = 'redrive' AND denied = 0 ORDER BY at_ms, id`, []any{digest, m.Tenant}, func(scan func(...any) error) error {
		a := Approval{Manifest: digest}
		var expires, revoked int64
		var by string
		if err := scan(&a.ID, &a.Subject, &a.Role, &a.Rate, &expires, &a.KID, &a.Signature, &revoked, &by); err != nil {
			return err
		}
		a.Expires = stamp(time.UnixMilli(expires))
		switch err := s.verify(&a, m, digest); {
		case revoked != 0 && reason.Code == pipeline.CodeApprovalMissing:
			reason = pipeline.Errorf(pipeline.CodeApprovalRevoked, string(digest), "%s revoked it", by)
		case revoked != 0:
		case err != nil:
			reason = err.(*pipeline.Error)
		default:
			subjects[a.Subject] = true
			if found == nil {
				found = &a
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, reason
	}
	if m.Identity.Policy == identityNew && len(subjects) < 2 {
		return nil, pipeline.Errorf(pipeline.CodeApprovalMissing, string(digest), "it makes new logical ids: a second person has to approve it").
			With("Ask another approver than " + found.Subject + ".")
	}
	return found, nil
}
