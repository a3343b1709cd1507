package redrive

import (
	"context"
	"slices"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// RateApproval is one person's signed statement that redrives of a pipeline may be faster than the platform's bound, for a while.
// It takes two of different persons; the pipeline's own ceiling holds all the same.
type RateApproval struct {
	Pipeline  string `json:"pipeline"`
	Rate      string `json:"rate"` // as in 200/s
	Subject   string `json:"subject"`
	Role      string `json:"role"`
	Expires   string `json:"expires"` // RFC 3339, UTC, milliseconds
	KID       string `json:"kid"`
	Signature []byte `json:"signature,omitempty"`
}

// Text is what is signed.
func (a *RateApproval) Text() []byte {
	b, err := seal.Canonical(map[string]any{"v": 1, "kind": "redrive_rate", "pipeline": a.Pipeline, "rate": a.Rate, "subject": a.Subject,
		"role": a.Role, "expires": a.Expires, "kid": a.KID})
	if err != nil {
		return nil
	}
	return b
}

// SignRate makes a rate approval with a person's own key.
func SignRate(key *seal.Signer, name string, rate Rate, role string, expires time.Time) RateApproval {
	a := RateApproval{Pipeline: name, Rate: rate.String(), Subject: key.Subject(), Role: role, Expires: stamp(expires), KID: key.KeyID()}
	a.Signature = key.Sign(a.Text())
	return a
}

// rateName is where approvals of a pipeline's rate stand among those of manifests.
func rateName(name string) string { return "rate/" + name }

func (s *Service) verifyRate(a *RateApproval) (Rate, error) {
	place := rateName(a.Pipeline)
	expires, err := s.signer(place, a.KID, a.Subject, a.Role, a.Expires, a.Text(), a.Signature)
	if err != nil {
		return 0, err
	}
	if !s.clock().Before(expires) {
		return 0, pipeline.Errorf(pipeline.CodeApprovalExpired, place, "it expired at %s", a.Expires)
	}
	return ParseRate(a.Rate)
}

// signer checks who signed a text, for whom and in which role, and reads when it expires. Codes: ERR_APPROVAL_INVALID.
func (s *Service) signer(place, kid, subject, role, expires string, text, sig []byte) (time.Time, error) {
	bad := func(format string, args ...any) (time.Time, error) {
		return time.Time{}, pipeline.Errorf(pipeline.CodeApprovalInvalid, place, format, args...)
	}
	i := slices.IndexFunc(s.approvers, func(p Approver) bool { return p.Key.KeyID() == kid })
	if i < 0 {
		return bad("the key %s is not registered", kid)
	}
	by := &s.approvers[i]
	if by.Key.Subject() != subject && !by.Console {
		return bad("the key %s belongs to %s, not to %s", kid, by.Key.Subject(), subject)
	}
	if subject == "" || text == nil || !by.Key.Verify(text, sig) {
		return bad("the signature does not verify")
	}
	if !by.Console && !slices.Contains(by.Roles, role) {
		return bad("the key %s does not have the role %q", kid, role)
	}
	if !slices.Contains(s.items.Roles()[role], custody.PermApprove) {
		return bad("the role %q may not approve", role)
	}
	at, err := time.Parse(time.RFC3339, expires)
	if err != nil || stamp(at) != expires {
		return bad("expires must be RFC 3339 in UTC with milliseconds")
	}
	return at, nil
}

// ApproveRate stores one person's half of a rate above the platform's bound. The rate is that of every tenant's items, so it takes
// somebody of all tenants. Codes: ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_APPROVAL_INVALID, ERR_APPROVAL_EXPIRED,
// ERR_REDRIVE_RATE (not a rate, or above the pipeline's ceiling).
func (s *Service) ApproveRate(ctx context.Context, who custody.Actor, a RateApproval) error {
	err := s.items.CheckWhole(ctx, who, custody.PermApprove)
	if err != nil {
		return err
	}
	t, err := s.target(a.Pipeline)
	if err != nil {
		return err
	}
	rate, err := s.verifyRate(&a)
	expires, _ := time.Parse(time.RFC3339, a.Expires)
	switch {
	case err != nil:
	case a.Subject != who.Subject || !slices.Contains(who.Roles, a.Role):
		err = pipeline.Errorf(pipeline.CodeApprovalInvalid, rateName(a.Pipeline), "%s cannot hand in an approval of %s as %s", who.Subject, a.Subject, a.Role)
	case expires.Sub(s.clock()) > maxApproval:
		err = pipeline.Errorf(pipeline.CodeApprovalInvalid, rateName(a.Pipeline), "an approval lasts 7 days at most")
	case t.Ceiling > 0 && rate > t.Ceiling:
		err = pipeline.Errorf(pipeline.CodeRedriveRate, rateName(a.Pipeline), "the pipeline's own ceiling is %s", t.Ceiling)
	}
	if err != nil {
		return s.refused(ctx, who, "approve-rate", rateName(a.Pipeline), "", err)
	}
	err = s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := tx.Lock(rateName(a.Pipeline)); err != nil {
			return err
		}
		if err := unused(tx, "rate", rateName(a.Pipeline), "", a.Signature); err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO approvals (id, tenant, kind, digest, subject, role, rate, expires_ms, kid, signature, at_ms, denied, reason, revoked_ms, revoked_by)
			VALUES (?, '', 'rate', ?, ?, ?, ?, ?, ?, ?, ?, 0, '', 0, '')`,
			randomID("a"), rateName(a.Pipeline), a.Subject, a.Role, a.Rate, expires.UnixMilli(), a.KID, a.Signature, tx.NowMS()); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Event: "redrive_rate_approved", Actor: a.Subject, Evidence: a.Signature,
			Detail: map[string]string{"pipeline": a.Pipeline, "rate": a.Rate, "expires": a.Expires, "role": a.Role, "via": who.Via}})
		return nil
	})
	return s.refused(ctx, who, "approve-rate", rateName(a.Pipeline), "", err)
}

// boundOf is the platform's bound for a pipeline now: its own, or what two different persons have signed and has not expired. Every
// signature is verified again: a row that somebody wrote counts for nothing.
func (s *Service) boundOf(tx *ledger.Tx, name string) (Rate, error) {
	best := map[string]Rate{}
	err := tx.Each("SELECT subject, role, rate, expires_ms, kid, signature FROM approvals WHERE digest = ? AND tenant = '' AND kind = 'rate' AND revoked_ms = 0 AND expires_ms > ?",
		[]any{rateName(name), s.clock().UnixMilli()}, func(scan func(...any) error) error {
			a := RateApproval{Pipeline: name}
			var expires int64
			if err := scan(&a.Subject, &a.Role, &a.Rate, &expires, &a.KID, &a.Signature); err != nil {
				return err
			}
			a.Expires = stampMS(expires)
			if r, err := s.verifyRate(&a); err == nil {
				best[a.Subject] = max(best[a.Subject], r)
			}
			return nil
		})
	if err != nil {
		return 0, err
	}
	rates := make([]Rate, 0, len(best))
	for _, r := range best {
		rates = append(rates, r)
	}
	slices.Sort(rates)
	if n := len(rates); n >= 2 {
		return max(s.bound, rates[n-2]), nil // what two agree on
	}
	return s.bound, nil
}

// rate is what a run of a pipeline may ask for now; want 0 asks for the most. Codes: ERR_REDRIVE_RATE.
func (s *Service) rate(tx *ledger.Tx, t *Target, want Rate) (Rate, error) {
	most, err := s.boundOf(tx, t.Pipeline)
	if err != nil {
		return 0, err
	}
	if t.Ceiling > 0 {
		most = min(most, t.Ceiling)
	}
	if want == 0 {
		return most, nil
	}
	if want < 0 || want > most {
		return 0, pipeline.Errorf(pipeline.CodeRedriveRate, t.Pipeline, "%s is above %s, the lowest of the pipeline's ceiling, the platform's bound and what two people have signed", want, most)
	}
	return want, nil
}
