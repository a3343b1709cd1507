package ledger

import (
	"time"

	"reprieve.dev/pipeline"
)

// Lease is a right that one holder has until it runs out. Epoch grows with each new holder: it fences the one before.
type Lease struct {
	Name, Holder string
	Epoch        int64
	Until        time.Time
	Detail       string
}

// Lease takes or extends the lease for holder until now + ttl. False: somebody else holds it (the lease says who and until
// when). Taking over one that ran out gives the next epoch.
func (t *Tx) Lease(name, holder string, ttl time.Duration) (Lease, bool, error) {
	now := t.nowMS
	l := Lease{Name: name}
	var until int64
	read := func() (bool, error) {
		return t.Row("SELECT holder, epoch, until_ms, detail FROM leases WHERE name = ?"+t.ForUpdate(), []any{name}, &l.Holder, &l.Epoch, &until, &l.Detail)
	}
	found, err := read()
	if err == nil && !found { // two that take it for the first time must both find a row to lock
		if _, err = t.Exec("INSERT INTO leases (name, holder, epoch, until_ms, detail) VALUES (?, '', 0, 0, '') ON CONFLICT (name) DO NOTHING", name); err == nil {
			_, err = read()
		}
	}
	if err != nil {
		return Lease{}, false, err
	}
	if l.Holder != holder && until > now {
		l.Until = time.UnixMilli(until)
		return l, false, nil
	}
	if l.Holder != holder || until <= now {
		l.Epoch++ // a holder that let it run out is fenced as well: somebody may have had it in between
	}
	l.Holder, until = holder, now+ttl.Milliseconds()
	l.Until = time.UnixMilli(until)
	_, err = t.Exec("UPDATE leases SET holder = ?, epoch = ?, until_ms = ? WHERE name = ?", holder, l.Epoch, until, name)
	return l, err == nil, err
}

// Held checks inside a transaction that the lease is still the holder's own at that epoch. Codes: ERR_REDRIVE_STATE.
func (t *Tx) Held(l Lease) error {
	var holder string
	var epoch, until int64
	if _, err := t.Row("SELECT holder, epoch, until_ms FROM leases WHERE name = ?"+t.ForUpdate(), []any{l.Name}, &holder, &epoch, &until); err != nil {
		return err
	}
	if holder != l.Holder || epoch != l.Epoch || until <= t.nowMS {
		return pipeline.Errorf(pipeline.CodeRedriveState, l.Name, "the lease is held by %q at epoch %d", holder, epoch)
	}
	return nil
}

// Unlease gives a lease back at once.
func (t *Tx) Unlease(l Lease) error {
	_, err := t.Exec("UPDATE leases SET until_ms = 0 WHERE name = ? AND holder = ? AND epoch = ?", l.Name, l.Holder, l.Epoch)
	return err
}
