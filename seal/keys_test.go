package seal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

func TestRingRotates(t *testing.T) {
	old := Key{ID: "h1", Secret: bytes.Repeat([]byte{1}, 32)}
	new := Key{ID: "h2", Secret: bytes.Repeat([]byte{2}, 32)}
	ring := func(keys ...Key) *Ring {
		r, err := NewRing(keys)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before, during, after := ring(old), ring(new, old), ring(new)
	kid, mac := before.Sign([]byte("m"))
	if kid != "h1" || !during.Verify(kid, []byte("m"), mac) {
		t.Error("the old key does not verify while both are there")
	}
	if after.Verify(kid, []byte("m"), mac) {
		t.Error("a removed key verifies")
	}
	kid2, mac2 := during.Sign([]byte("m"))
	if kid2 != "h2" || bytes.Equal(mac, mac2) {
		t.Error("the first key does not sign")
	}
	for name, ok := range map[string]bool{
		"other message": during.Verify(kid2, []byte("M"), mac2), "other key": during.Verify(kid, []byte("m"), mac2),
		"unknown key": during.Verify("h3", []byte("m"), mac2), "cut off": during.Verify(kid2, []byte("m"), mac2[:31]), "nothing": during.Verify(kid2, []byte("m"), nil),
	} {
		if ok {
			t.Errorf("%s verifies", name)
		}
	}
	if ids := during.KeyIDs(); strings.Join(ids, " ") != "h2 h1" {
		t.Error(ids)
	}
}

func TestKeysAreRefused(t *testing.T) {
	good := bytes.Repeat([]byte{1}, 16)
	for name, keys := range map[string][]Key{
		"none": nil, "short": {{ID: "a", Secret: good[:15]}}, "no id": {{Secret: good}}, "twice": {{ID: "a", Secret: good}, {ID: "a", Secret: good}},
		"separator in the id": {{ID: "a;b", Secret: good}}, "colon in the id": {{ID: "a:b", Secret: good}}, "line break": {{ID: "a\n", Secret: good}}, "long id": {{ID: strings.Repeat("a", 129), Secret: good}},
	} {
		if _, err := NewRing(keys); code(err) != "ERR_CONFIG_VALUE" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewIdentityKey("", good); code(err) != "ERR_CONFIG_VALUE" {
		t.Error(err)
	}
	if _, err := NewSigner("alice", good); code(err) != "ERR_CONFIG_VALUE" {
		t.Error(err)
	}
	if _, err := GenerateSigner("alice\nbob"); code(err) != "ERR_CONFIG_VALUE" {
		t.Error(err)
	}
	if _, err := NewPrivateKey("k", good); code(err) != "ERR_CONFIG_VALUE" {
		t.Error(err)
	}
	if _, err := NewPublicKey("k", good); code(err) != "ERR_CONFIG_VALUE" {
		t.Error(err)
	}
	if _, err := GeneratePrivateKey("a b"); code(err) != "ERR_CONFIG_VALUE" {
		t.Error(err)
	}
}

func TestKeysKeepTheirOwnCopy(t *testing.T) {
	secret := bytes.Repeat([]byte{1}, 32)
	id, _ := NewIdentityKey("a", secret)
	ring, _ := NewRing([]Key{{ID: "a", Secret: secret}})
	digest := id.Digest([]byte("x"))
	kid, mac := ring.Sign([]byte("x"))
	clear(secret)
	if id.Digest([]byte("x")) != digest || !ring.Verify(kid, []byte("x"), mac) {
		t.Error("a key changed with the caller's bytes")
	}
}

func TestRingIsSafeForConcurrentUse(t *testing.T) {
	ring, _ := NewRing([]Key{{ID: "a", Secret: bytes.Repeat([]byte{1}, 32)}})
	_, want := ring.Sign([]byte("m"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 {
				if _, mac := ring.Sign([]byte("m")); !bytes.Equal(mac, want) || !ring.Verify("a", []byte("m"), mac) {
					t.Errorf("round %d differs", i)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSignerSurvivesItsFile(t *testing.T) {
	s, err := GenerateSigner("alice@acme.example")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "alice.pem")
	if err := s.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := s.WriteFile(path); code(err) != "ERR_CONFIG_READ" {
		t.Errorf("a key is overwritten: %v", err)
	}
	back, err := ReadSigner(path)
	if err != nil || back.Subject() != s.Subject() || back.KeyID() != s.KeyID() {
		t.Fatal(back, err)
	}
	for name, text := range map[string][]byte{"PEM": s.Verifier().PEM(), "text": []byte(s.Verifier().Text() + "\n")} {
		v, err := ParseVerifier(text)
		if err != nil || v.KeyID() != s.KeyID() {
			t.Fatalf("%s: %v", name, err)
		}
		sig := back.Sign([]byte("m"))
		if !v.Verify([]byte("m"), sig) || v.Verify([]byte("n"), sig) || v.Verify([]byte("m"), sig[:63]) || v.Verify([]byte("m"), nil) {
			t.Errorf("%s: verification is wrong", name)
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644, 0o660} {
		os.Chmod(path, mode)
		if _, err := ReadSigner(path); code(err) != "ERR_CONFIG_UNSAFE" {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

func TestSignerFilesAreRefused(t *testing.T) {
	s, _ := NewSigner("alice", vectorSeed)
	dir := t.TempDir()
	if _, err := ReadSigner(filepath.Join(dir, "none")); code(err) != "ERR_CONFIG_READ" {
		t.Error(err)
	}
	if _, err := ReadSigner(dir); code(err) != "ERR_CONFIG_READ" {
		t.Error(err)
	}
	if _, err := ParseSigner(s.Verifier().PEM()); code(err) != "ERR_CONFIG_VALUE" {
		t.Error("a public key signs", err)
	}
	if _, err := ParseVerifier(s.PEM()); code(err) != "ERR_CONFIG_VALUE" || !strings.Contains(err.Error(), "private key") {
		t.Error("a private key is taken for a public one", err)
	}
	for _, text := range []string{"", "x", "AAAA", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if _, err := ParseSigner([]byte(text)); code(err) != "ERR_CONFIG_VALUE" {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := ParseVerifier([]byte(text)); code(err) != "ERR_CONFIG_VALUE" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSecretsAreNewAndPrivate(t *testing.T) {
	dir := t.TempDir()
	var texts []string
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name)
		if err := WriteSecret(path, 32); err != nil {
			t.Fatal(err)
		}
		info, _ := os.Stat(path)
		text, _ := os.ReadFile(path)
		if info.Mode().Perm() != 0o600 || len(text) != 45 {
			t.Errorf("mode %v, %d bytes", info.Mode(), len(text))
		}
		texts = append(texts, string(text))
	}
	if texts[0] == texts[1] {
		t.Error("two secrets are the same")
	}
}

func TestLPIsUnambiguous(t *testing.T) {
	if bytes.Equal(LP([]byte("ab"), []byte("c")), LP([]byte("a"), []byte("bc"))) || bytes.Equal(LP(nil), LP(nil, nil)) {
		t.Error("two lists have one form")
	}
	if !bytes.Equal(AppendLPText(AppendLP(nil, []byte("a")), "b"), LP([]byte("a"), []byte("b"))) {
		t.Error("appending differs")
	}
	for _, b := range [][]byte{{0}, {0, 0, 0, 1}, {255, 255, 255, 255, 0}, {0, 0, 0, 0, 0}} {
		if _, err := ParseLP(b); code(err) != "ERR_INPUT_INVALID" {
			t.Errorf("%x: %v", b, err)
		}
	}
}

func TestBase32HasOneSpelling(t *testing.T) {
	for _, s := range []string{"MZXW6", "mzxw6=", "mzxw6\n", "m1", "mzxw7", "a"} {
		if b, err := ParseBase32(s); code(err) != "ERR_INPUT_INVALID" {
			t.Errorf("%q is %x", s, b)
		}
	}
	if b, err := ParseBase32("mzxw6ytboi"); err != nil || string(b) != "foobar" {
		t.Error(b, err)
	}
}

func FuzzLP(f *testing.F) {
	f.Add(LP([]byte("v1"), nil, []byte("acme")))
	f.Add([]byte{0, 0, 0, 9, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := ParseLP(b)
		if err == nil && !bytes.Equal(LP(fields...), b) {
			t.Fatalf("%x is read as %q", b, fields)
		}
	})
}

func FuzzKeyFiles(f *testing.F) {
	s, _ := NewSigner("alice", vectorSeed)
	f.Add(s.PEM())
	f.Add(s.Verifier().PEM())
	f.Add([]byte(s.Verifier().Text()))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := ParseSigner(text); err == nil {
			if !s.Verifier().Verify([]byte("m"), s.Sign([]byte("m"))) {
				t.Fatal("a key that was read does not sign")
			}
		}
		if v, err := ParseVerifier(text); err == nil && v.Verify([]byte("m"), make([]byte, 64)) {
			t.Fatal("zeros verify")
		}
	})
}
