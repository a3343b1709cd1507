package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"testing"
	"time"
)

// The vectors of this file are a contract: what was signed, named or sealed by an earlier version must be read by every later
// one. A change here is a new version of the form, never a correction.

var (
	vectorSecret = []byte("0123456789abcdef0123456789abcdef")
	vectorSeed   = bytes.Repeat([]byte{7}, 32)
)

func TestVectorsOfBytes(t *testing.T) {
	same(t, "LP", hex.EncodeToString(LP([]byte("v1"), nil, []byte("acme"))), "000000027631000000000000000461636d65")
	same(t, "LP of nothing", hex.EncodeToString(LP()), "")
	same(t, "Base32", Base32([]byte("foobar")), "mzxw6ytboi")
	same(t, "SHA256", SHA256([]byte("abc")), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
	same(t, "SHA256 of empty", SHA256([]byte{}), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	same(t, "SHA256 of null", SHA256(nil), "sha256:null")
	same(t, "Fingerprint", Fingerprint([]byte("billing"), []byte("decode"), []byte("payload"), []byte("ERR_DECODE_TRUNCATED")), "f14sm6prlsdhpaqfa4ptisgotlqm")
}

func TestVectorsOfKeys(t *testing.T) {
	id, err := NewIdentityKey("id1", vectorSecret)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "Digest", id.Digest([]byte("abc")), "hmac256:id1:a60c859a6827c5ea576a48d8d368672fbfe4667c6a927428284a0cb3859cc1d6")
	same(t, "Digest of empty", id.Digest([]byte{}), "hmac256:id1:796cd3078af14636753d26b3b5555422ff55a3e261cf847b48e95371b9bd0aa2")
	same(t, "Digest of null", id.Digest(nil), "hmac256:id1:null")
	same(t, "QuarantineID", id.QuarantineID([]byte("v1"), []byte("billing"), []byte("acme"), []byte("e-1"), []byte("hmac256:id1:null")), "qvvuwcz4aevjm2kk3ldraz6zfjfo4u456")
	ring, err := NewRing([]Key{{ID: "h1", Secret: vectorSecret}})
	if err != nil {
		t.Fatal(err)
	}
	kid, mac := ring.Sign([]byte("abc"))
	same(t, "Sign", kid+" "+hex.EncodeToString(mac), "h1 a60c859a6827c5ea576a48d8d368672fbfe4667c6a927428284a0cb3859cc1d6")
	signer, err := NewSigner("alice", vectorSeed)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "KeyID", signer.KeyID(), "k72asyextvngonlc5w2nmguxz")
	same(t, "public", signer.Verifier().Text(), "6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=")
	same(t, "signature", base64.StdEncoding.EncodeToString(signer.Sign([]byte("abc"))), "5T/01aw/EfyMRnr3e50pElNjK8R4r1GAGwtsN1h8SSjPPss39R4PAkgbe+bUlOyVVYeyOnFsuQmB7Ba2MCMMBw==")
	same(t, "private PEM", string(signer.PEM()), "subject: alice\n-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\n-----END PRIVATE KEY-----\n")
	same(t, "public PEM", string(signer.Verifier().PEM()), "subject: alice\n-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=\n-----END PUBLIC KEY-----\n")
}

// A value that version 1 sealed: key, header and bytes.
const (
	sealedPrivate = "d059714ec4cb8eb0ee05fd322224bd4e6580e1a05d8ab0625dccfd008c8d146b"
	sealedEnc     = "hpke1;acme/1;EWWpu9vttS7-xiqGcZC4nsMuK2RjTXuT4riOpigrxxn9AyfzHbHwx64WeVB9XiJ9ag-ViVDY3tL6RZhbCNVVC4-v5D5q2KfYefDxz01R0kU"
	sealedValue   = "AfcSFe6rAwk1LBBblb7Jg/s6ddtc7C2eQyKe5EvEnjxxZQxGhBIhsJ7Wh7l8m4k4BLtYhH1JQkmXhgRc5yYytFG3JuHshMyytWvtMHdor2YV6MiyOw=="
	sealedPlain   = `{"invoice_id":"INV-1","amount_minor":"9007199254740993"}`
	sealedAAD     = "qvector"
)

func TestVectorsOfSealing(t *testing.T) {
	raw, _ := hex.DecodeString(sealedPrivate)
	private, err := NewPrivateKey("acme/1", raw)
	if err != nil {
		t.Fatal(err)
	}
	sealed, _ := base64.StdEncoding.DecodeString(sealedValue)
	opener := NewOpener(func(tenant, kid string) (*PrivateKey, error) {
		same(t, "asked for", tenant+" "+kid, "acme acme/1")
		return private, nil
	}, OpenerOptions{Clock: time.Now})
	plain, err := opener.Open("acme", sealedEnc, sealed, []byte(sealedAAD))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "plain", string(plain), sealedPlain)
	// With the same key and nonce the bytes are the same too: form, order and lengths are fixed.
	aead := newAEAD(vectorSecret)
	out := append([]byte{sealedVersion}, []byte("nonce-of-12-")...)
	same(t, "sealed", hex.EncodeToString(aead.Seal(out, out[1:], []byte("abc"), []byte("q1"))), "016e6f6e63652d6f662d31322d9252b5e60751df4502d43f893add102011a1d5")
	got, err := openValue(aead, aead.Seal(out, out[1:], []byte("abc"), []byte("q1")), []byte("q1"))
	if err != nil || string(got) != "abc" {
		t.Error(string(got), err)
	}
	same(t, "Bundle", hex.EncodeToString(Bundle("hpke1;k;AA", []byte{1, 2})), "0000000a68706b65313b6b3b41410102")
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is\n%s\nwant\n%s", what, got, want)
	}
}
