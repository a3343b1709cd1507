package seal

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// vault is a key store for tests: the current private key of each tenant, with counts of what was asked.
type vault struct {
	mu            sync.Mutex
	keys          map[string]*PrivateKey
	sealed, opens int
	erased        error
}

func newVault(t testing.TB, tenants ...string) *vault {
	v := &vault{keys: map[string]*PrivateKey{}}
	for _, name := range tenants {
		k, err := GeneratePrivateKey(name + "/1")
		if err != nil {
			t.Fatal(err)
		}
		v.keys[name] = k
	}
	return v
}

func (v *vault) public(tenant string) (*PublicKey, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sealed++
	if k := v.keys[tenant]; k != nil {
		return k.Public(), nil
	}
	return nil, nil
}

func (v *vault) private(tenant, kid string) (*PrivateKey, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opens++
	if v.erased != nil {
		return nil, v.erased
	}
	return v.keys[tenant], nil
}

// hand is a clock that a test moves.
type hand struct {
	mu sync.Mutex
	at time.Time
}

func (h *hand) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at
}

func (h *hand) move(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = h.at.Add(d)
}

func TestSealedValueOpensForItsOwnOnly(t *testing.T) {
	v, clock := newVault(t, "acme", "globex"), &hand{at: time.Unix(1e9, 0)}
	s := NewSealer(v.public, SealerOptions{Clock: clock.now})
	plain := []byte(`{"invoice":"INV-1"}`)
	sealed, enc, err := s.Seal("acme", plain, []byte("q1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) != 1+12+len(plain)+16 || sealed[0] != 1 || bytes.Contains(sealed, plain) || !strings.HasPrefix(enc, "hpke1;acme/1;") {
		t.Errorf("form %x %s", sealed, enc)
	}
	open := func(tenant, enc string, sealed []byte, aad string) ([]byte, error) {
		return NewOpener(v.private, OpenerOptions{Clock: clock.now}).Open(tenant, enc, sealed, []byte(aad))
	}
	if got, err := open("acme", enc, sealed, "q1"); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("%q, %v", got, err)
	}
	flip := func(b []byte, i int) []byte {
		c := bytes.Clone(b)
		c[(i+len(c))%len(c)] ^= 1
		return c
	}
	refused := map[string]func() ([]byte, error){
		"another tenant":           func() ([]byte, error) { return open("globex", enc, sealed, "q1") },
		"another item":             func() ([]byte, error) { return open("acme", enc, sealed, "q2") },
		"a changed byte":           func() ([]byte, error) { return open("acme", enc, flip(sealed, 20), "q1") },
		"a changed nonce":          func() ([]byte, error) { return open("acme", enc, flip(sealed, 1), "q1") },
		"a changed tag":            func() ([]byte, error) { return open("acme", enc, flip(sealed, -1), "q1") },
		"another version":          func() ([]byte, error) { return open("acme", enc, flip(sealed, 0), "q1") },
		"cut off":                  func() ([]byte, error) { return open("acme", enc, sealed[:28], "q1") },
		"empty":                    func() ([]byte, error) { return open("acme", enc, []byte{}, "q1") },
		"a changed data key":       func() ([]byte, error) { return open("acme", enc[:60]+"AAAA"+enc[64:], sealed, "q1") },
		"no header":                func() ([]byte, error) { return open("acme", "", sealed, "q1") },
		"another scheme":           func() ([]byte, error) { return open("acme", "hpke2"+enc[5:], sealed, "q1") },
		"padding":                  func() ([]byte, error) { return open("acme", enc+"=", sealed, "q1") },
		"a line break":             func() ([]byte, error) { return open("acme", enc+"\n", sealed, "q1") },
		"a field more":             func() ([]byte, error) { return open("acme", enc+";x", sealed, "q1") },
		"a data key that is empty": func() ([]byte, error) { return open("acme", "hpke1;acme/1;", sealed, "q1") },
		"a key id that cannot be":  func() ([]byte, error) { return open("acme", "hpke1;a b;AAAA", sealed, "q1") },
	}
	for name, f := range refused {
		if got, err := f(); code(err) != "ERR_SEAL_BROKEN" || got != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestNullStaysNullAndEmptyStaysEmpty(t *testing.T) {
	v, clock := newVault(t, "acme"), &hand{at: time.Unix(1e9, 0)}
	s, o := NewSealer(v.public, SealerOptions{Clock: clock.now}), NewOpener(v.private, OpenerOptions{Clock: clock.now})
	sealed, enc, err := s.Seal("acme", nil, []byte("q"))
	if sealed != nil || enc != "" || err != nil {
		t.Error(sealed, enc, err)
	}
	if plain, err := o.Open("acme", "", nil, []byte("q")); plain != nil || err != nil {
		t.Error(plain, err)
	}
	sealed, enc, err = s.Seal("acme", []byte{}, []byte("q"))
	if err != nil || len(sealed) != 29 {
		t.Fatal(sealed, err)
	}
	if plain, err := o.Open("acme", enc, sealed, []byte("q")); err != nil || plain == nil || len(plain) != 0 {
		t.Error(plain, err)
	}
	b := Bundle(enc, sealed)
	e, body, err := Unbundle(b)
	if err != nil || e != enc || !bytes.Equal(body, sealed) {
		t.Error(e, body, err)
	}
	if Bundle("", nil) != nil {
		t.Error("null is bundled")
	}
	if _, body, err := Unbundle(nil); body != nil || err != nil {
		t.Error(body, err)
	}
	for _, b := range [][]byte{{}, {0, 0, 0}, {0, 0, 0, 9, 1}, {255, 255, 255, 255}} {
		if _, _, err := Unbundle(b); code(err) != "ERR_SEAL_BROKEN" {
			t.Errorf("%x: %v", b, err)
		}
	}
}

func TestINVSealNonceDataKeyLivesForAThousandLettersOrAMinute(t *testing.T) {
	v, clock := newVault(t, "acme", "globex"), &hand{at: time.Unix(1e9, 0)}
	s := NewSealer(v.public, SealerOptions{Clock: clock.now, Letters: 5000, Age: time.Hour}) // more than allowed: clamped
	count := func(n int, step time.Duration) map[string]int {
		encs := map[string]int{}
		for range n {
			_, enc, err := s.Seal("acme", []byte("x"), []byte("q"))
			if err != nil {
				t.Fatal(err)
			}
			encs[enc]++
			clock.move(step)
		}
		return encs
	}
	for enc, n := range count(2500, 0) {
		if n > 1000 {
			t.Errorf("%d letters under %s", n, enc[:20])
		}
	}
	if v.sealed != 3 {
		t.Errorf("%d data keys for 2500 letters", v.sealed)
	}
	clock.move(time.Hour)
	v.sealed = 0
	if encs := count(61, 2*time.Second); len(encs) != 3 || v.sealed != 3 {
		t.Errorf("%d data keys in two minutes", len(encs))
	}
	clock.move(-time.Hour) // a clock that goes back
	v.sealed = 0
	if count(1, 0); v.sealed != 1 {
		t.Error("a data key of the future is used")
	}
	_, one, _ := s.Seal("acme", []byte("x"), nil)
	_, other, _ := s.Seal("globex", []byte("x"), nil)
	if one == other {
		t.Error("two tenants share a data key")
	}
	s.Forget("acme")
	if _, again, _ := s.Seal("acme", []byte("x"), nil); again == one {
		t.Error("a forgotten data key is used")
	}
}

func TestSealerHoldsABoundedNumberOfTenants(t *testing.T) {
	clock := &hand{at: time.Unix(1e9, 0)}
	v := newVault(t, "a")
	s := NewSealer(func(string) (*PublicKey, error) { return v.public("a") }, SealerOptions{Clock: clock.now, Tenants: 3})
	for _, tenant := range []string{"a", "b", "c", "d", "e", "a"} {
		if _, _, err := s.Seal(tenant, []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
		if len(s.byName) > 3 {
			t.Fatalf("%d tenants are held", len(s.byName))
		}
	}
}

func TestSealerRefusesWithoutAKey(t *testing.T) {
	clock := &hand{at: time.Unix(1e9, 0)}
	s := NewSealer(newVault(t).public, SealerOptions{Clock: clock.now})
	if sealed, _, err := s.Seal("acme", []byte("x"), nil); code(err) != "ERR_KEY_UNKNOWN" || sealed != nil {
		t.Error(err)
	}
	broken := errors.New("the control topic is not read yet")
	s = NewSealer(func(string) (*PublicKey, error) { return nil, broken }, SealerOptions{Clock: clock.now})
	if sealed, _, err := s.Seal("acme", []byte("x"), nil); !errors.Is(err, broken) || sealed != nil {
		t.Error(err)
	}
}

func TestOpenerKeepsDataKeysUntilTheyAreForgotten(t *testing.T) {
	v, clock := newVault(t, "acme"), &hand{at: time.Unix(1e9, 0)}
	s, o := NewSealer(v.public, SealerOptions{Clock: clock.now}), NewOpener(v.private, OpenerOptions{Clock: clock.now, Keys: 4})
	sealed, enc, _ := s.Seal("acme", []byte("x"), []byte("q"))
	open := func() error {
		_, err := o.Open("acme", enc, sealed, []byte("q"))
		return err
	}
	for range 10 {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	if v.opens != 1 {
		t.Errorf("asked %d times for 10 letters of one data key", v.opens)
	}
	clock.move(2 * time.Minute)
	if err := open(); err != nil || v.opens != 2 {
		t.Errorf("kept beyond its time: %v, %d", err, v.opens)
	}
	gone := refuse("ERR_KEY_DESTROYED", "acme", "erased")
	v.erased = gone
	if err := open(); err != nil {
		t.Errorf("%v: within its time the data key is still here", err)
	}
	o.Forget("acme")
	if err := open(); !errors.Is(err, gone) {
		t.Errorf("after erasing: %v", err)
	}
	v.erased = nil
	for range 100 { // another data key each time: what is kept stays bounded
		s.Forget("acme")
		sealed, enc, _ := s.Seal("acme", []byte("x"), []byte("q"))
		if _, err := o.Open("acme", enc, sealed, []byte("q")); err != nil {
			t.Fatal(err)
		}
		if n := len(o.young) + len(o.old); n > 4 {
			t.Fatalf("%d data keys are kept", n)
		}
	}
}

func TestErasingWhileOpeningKeepsNothing(t *testing.T) {
	v, clock := newVault(t, "acme"), &hand{at: time.Unix(1e9, 0)}
	s := NewSealer(v.public, SealerOptions{Clock: clock.now})
	sealed, enc, _ := s.Seal("acme", []byte("x"), []byte("q"))
	var o *Opener
	o = NewOpener(func(tenant, kid string) (*PrivateKey, error) {
		o.Forget("acme") // the erasure comes between reading the key and keeping it
		return v.private(tenant, kid)
	}, OpenerOptions{Clock: clock.now})
	if _, err := o.Open("acme", enc, sealed, []byte("q")); err != nil {
		t.Fatal(err)
	}
	if len(o.young)+len(o.old) != 0 {
		t.Error("the data key of an erased tenant is kept")
	}
}

func TestSealingIsSafeForConcurrentUse(t *testing.T) {
	v, clock := newVault(t, "a", "b", "c"), &hand{at: time.Unix(1e9, 0)}
	s, o := NewSealer(v.public, SealerOptions{Clock: clock.now, Letters: 50, Tenants: 2}), NewOpener(v.private, OpenerOptions{Clock: clock.now, Keys: 8})
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			tenant := string(rune('a' + g%3))
			for i := range 200 {
				sealed, enc, err := s.Seal(tenant, []byte(tenant), []byte("q"))
				if err != nil {
					t.Error(err)
					return
				}
				if plain, err := o.Open(tenant, enc, sealed, []byte("q")); err != nil || string(plain) != tenant {
					t.Error(string(plain), err)
					return
				}
				if i%50 == 0 {
					o.Forget(tenant)
					s.Forget(tenant)
					clock.move(10 * time.Second)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzOpen(f *testing.F) {
	v, clock := newVault(f, "acme"), &hand{at: time.Unix(1e9, 0)}
	s, o := NewSealer(v.public, SealerOptions{Clock: clock.now}), NewOpener(v.private, OpenerOptions{Clock: clock.now})
	sealed, enc, _ := s.Seal("acme", []byte("x"), []byte("q"))
	f.Add(enc, sealed, []byte("q"))
	f.Add("hpke1;k;", []byte{1}, []byte{})
	f.Fuzz(func(t *testing.T, e string, b, aad []byte) {
		plain, err := o.Open("acme", e, b, aad)
		if err == nil && len(b) > 0 && (e != enc || !bytes.Equal(b, sealed) || string(plain) != "x") {
			t.Fatal("something else opens")
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	v := newVault(b, "acme")
	s := NewSealer(v.public, SealerOptions{Clock: time.Now})
	plain, aad := make([]byte, 1200), []byte("qaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.Seal("acme", plain, aad); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	ring, _ := NewRing([]Key{{ID: "h1", Secret: vectorSecret}})
	msg := make([]byte, 400)
	b.ReportAllocs()
	for b.Loop() {
		ring.Sign(msg)
	}
}
