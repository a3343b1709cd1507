package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
)

// Signer is the private key of a person, of the console or of a registered writer (Ed25519). The subject says whose it is.
type Signer struct {
	subject string
	private ed25519.PrivateKey
}

// Verifier is the public key of a Signer.
type Verifier struct {
	subject string
	public  ed25519.PublicKey
}

// GenerateSigner makes a new key for subject. Codes: ERR_CONFIG_VALUE (a subject that cannot stand on one line).
func GenerateSigner(subject string) (*Signer, error) {
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, &Error{Code: codeKey, Place: subject, Text: "no key could be made", Cause: err}
	}
	return &Signer{subject, private}, nil
}

// NewSigner makes the key from a seed of 32 bytes, for vectors and derived keys. Codes: ERR_CONFIG_VALUE.
func NewSigner(subject string, seed []byte) (*Signer, error) {
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	if len(seed) != ed25519.SeedSize {
		return nil, refuse(codeKey, subject, "an Ed25519 seed has 32 bytes, not %d", len(seed))
	}
	return &Signer{subject, ed25519.NewKeyFromSeed(seed)}, nil
}

// Subject is whose key it is.
func (s *Signer) Subject() string { return s.subject }

// KeyID follows from the public key: see Verifier.KeyID.
func (s *Signer) KeyID() string { return s.Verifier().KeyID() }

// Sign returns the 64 bytes of the Ed25519 signature of msg. What is signed must name its purpose, so that a signature for
// one thing can never be used for another: sign canonical JSON with a "v" and a "kind", or LP with a first field.
func (s *Signer) Sign(msg []byte) []byte { return ed25519.Sign(s.private, msg) }

// Verifier is the public half.
func (s *Signer) Verifier() *Verifier {
	return &Verifier{s.subject, s.private.Public().(ed25519.PublicKey)}
}

// PEM is the private key as PKCS #8 with the subject on a line before it.
func (s *Signer) PEM() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(s.private)
	if err != nil {
		panic(err) // INV-SEAL-KEY: an Ed25519 key always has a PKCS #8 form
	}
	return append([]byte("subject: "+s.subject+"\n"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
}

// WriteFile writes the private key to path with mode 0600 and never over an existing file. Codes: ERR_CONFIG_READ.
func (s *Signer) WriteFile(path string) error { return writePrivate(path, s.PEM()) }

// ReadSigner reads what WriteFile wrote. A file that others may read is refused: the key is no secret any more. Codes:
// ERR_CONFIG_READ, ERR_CONFIG_UNSAFE (mode), ERR_CONFIG_VALUE (not such a key).
func ReadSigner(path string) (*Signer, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	s, err := ParseSigner(text)
	if e, ok := err.(*Error); ok {
		e.Place = path
	}
	return s, err
}

// ParseSigner reads the text of a private key file. Codes: ERR_CONFIG_VALUE.
func ParseSigner(text []byte) (*Signer, error) {
	subject, block := splitPEM(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, refuse(codeKey, "", "no PEM block \"PRIVATE KEY\" is in it")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, refuse(codeKey, "", "it is not an Ed25519 private key")
	}
	return &Signer{subject, private}, nil
}

// Subject is whose key it is, as its file says; what a worker file registers goes before it.
func (v *Verifier) Subject() string { return v.subject }

// Verify tells whether sig is this key's signature of msg.
func (v *Verifier) Verify(msg, sig []byte) bool {
	return len(sig) == ed25519.SignatureSize && ed25519.Verify(v.public, msg, sig)
}

// KeyID is "k" and the base32 of the first 15 bytes of SHA-256 of the public key: the kid of approvals and outcomes.
func (v *Verifier) KeyID() string {
	sum := sha256.Sum256(v.public)
	return "k" + Base32(sum[:15])
}

// Text is the public key in one line, base64 of its 32 bytes: the form for worker files.
func (v *Verifier) Text() string { return base64.StdEncoding.EncodeToString(v.public) }

// PEM is the public key as PKIX with the subject on a line before it.
func (v *Verifier) PEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(v.public)
	if err != nil {
		panic(err) // INV-SEAL-KEY: an Ed25519 key always has a PKIX form
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if v.subject != "" {
		text = append([]byte("subject: "+v.subject+"\n"), text...)
	}
	return text
}

// ParseVerifier reads a public key: the one line of Text, or PEM. A private key given by mistake is refused by name. Codes:
// ERR_CONFIG_VALUE.
func ParseVerifier(text []byte) (*Verifier, error) {
	subject, block := splitPEM(text)
	if block == nil {
		raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(string(text)))
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return nil, refuse(codeKey, "", "it is neither PEM nor the base64 of a 32-byte Ed25519 public key")
		}
		return &Verifier{"", raw}, nil
	}
	if block.Type == "PRIVATE KEY" {
		return nil, refuse(codeKey, "", "it is a private key; give the public one, and replace this one if others saw it")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	public, ok := key.(ed25519.PublicKey)
	if err != nil || !ok {
		return nil, refuse(codeKey, "", "it is not an Ed25519 public key")
	}
	return &Verifier{subject, public}, nil
}

// WriteSecret makes a new secret of n random bytes for keys.hmac or keys.identity and writes it as one line of base64 with
// mode 0600, never over an existing file. Codes: ERR_CONFIG_READ.
func WriteSecret(path string, n int) error {
	b := make([]byte, n)
	rand.Read(b) // never fails: the program ends if the system has no randomness
	return writePrivate(path, []byte(base64.StdEncoding.EncodeToString(b)+"\n"))
}

// ReadSecret reads what WriteSecret wrote: n bytes. A file that others may read is refused. Codes: ERR_CONFIG_READ, ERR_CONFIG_UNSAFE
// (mode), ERR_CONFIG_VALUE.
func ReadSecret(path string, n int) ([]byte, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(b) != n {
		return nil, refuse(codeKey, path, "it is not the base64 of %d bytes", n)
	}
	return b, nil
}

func checkSubject(s string) error {
	if s == "" || len(s) > 256 || strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return refuse(codeKey, "", "a subject is one line of 1 to 256 characters")
	}
	return nil
}

func splitPEM(text []byte) (subject string, block *pem.Block) {
	at := bytes.Index(text, []byte("-----BEGIN "))
	if at < 0 {
		return "", nil
	}
	for line := range strings.Lines(string(text[:at])) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "subject" {
			subject = strings.TrimSpace(value)
		}
	}
	block, _ = pem.Decode(text[at:])
	return subject, block
}

func writePrivate(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return &Error{Code: codeRead, Place: path, Text: "the key file cannot be made: " + plain(err), Cause: err}
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(path) // half a key would be found by the next start
		return &Error{Code: codeRead, Place: path, Text: "the key file cannot be written: " + plain(err), Cause: err}
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		dir.Sync() // the name must survive a crash too; a folder that cannot be synced is no reason to refuse
		dir.Close()
	}
	return nil
}

func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{Code: codeRead, Place: path, Text: "the key file cannot be read: " + plain(err), Cause: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 {
		return nil, &Error{Code: codeRead, Place: path, Text: "it is not a key file", Cause: err}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, refuse(codeUnsafe, path, "others may read this private key (mode %#o): chmod 600 it, and replace it if they did", info.Mode().Perm())
	}
	text := make([]byte, info.Size())
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return nil, &Error{Code: codeRead, Place: path, Text: "the key file cannot be read", Cause: err}
	}
	return text, nil
}

// plain is an operating system's error without the path, which the place already names.
func plain(err error) string {
	if e, ok := err.(*os.PathError); ok {
		return e.Err.Error()
	}
	return err.Error()
}
