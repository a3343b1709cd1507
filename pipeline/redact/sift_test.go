package redact

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"reprieve.dev/pipeline"
)

// schemeTails are the last three letters of the schemes.
var schemeTails = []string{"rer", "sic", "est", "key", "ate", "tlm", "awk"}

// sifted is what sift says of byte i, one byte at a time.
func sifted(src []byte, i int) (mark, digit, space bool) {
	c := src[i]
	digit, space = c >= '0' && c <= '9', c == ' '
	mark = c < ' ' || c >= 0x80 || bytes.IndexByte([]byte(`%&:;<=>\J`), c) >= 0
	return mark, digit, space
}

// endsScheme tells whether a scheme may end before src[i], which parts words.
func endsScheme(src []byte, i int) bool {
	if i < 3 || src[i] != ' ' && src[i] != '+' {
		return false
	}
	for _, tail := range schemeTails {
		if string(bytes.ToLower(src[i-3:i])) == tail {
			return true
		}
	}
	return false
}

func bit(words []uint64, i int) bool { return words[i/64]>>(i%64)&1 != 0 }

// checkSift compares the bits of src with what its bytes say, and what is plain with what Keeps says.
func checkSift(t *testing.T, e *Editor, s *pipeline.Sieve, src []byte, ends []int) {
	t.Helper()
	if !e.Sift(src, s) {
		t.Skip("this machine does not sift")
	}
	for i := range src {
		mark, digit, space := sifted(src, i)
		if bit(s.Digits, i) != digit || bit(s.Spaces, i) != space {
			t.Fatalf("%q at %d: digit %v, space %v", src, i, bit(s.Digits, i), bit(s.Spaces, i))
		}
		if got := bit(s.Marks, i); got != (mark || endsScheme(src, i)) {
			t.Fatalf("%q at %d: a mark %v, want %v", src, i, got, mark)
		}
	}
	for i, from := range ends {
		for _, to := range ends[i:] {
			plain := s.Plain(src, from, to, minDigits)
			if kept, ascii := e.Keeps(src[from:to]); plain && !(kept && ascii) {
				t.Fatalf("%q is plain, and kept %v, ASCII %v", src[from:to], kept, ascii)
			}
		}
	}
}

// Whatever a text begins and ends beside, and wherever it lies in the blocks that are sifted, what is plain is kept.
func TestWhatIsPlainIsKept(t *testing.T) {
	r, err := New(Config{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, s := r.NewEditor(), &pipeline.Sieve{}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, before := range []int{0, 1, 3, 29, 31, 60, 63} {
		var src []byte
		ends := []int{before}
		src = append(src, bytes.Repeat([]byte("b"), before)...)
		for _, text := range []string{"Bearer abcdefgh", "a BASIC dXNlcjpwYXNz", "ntlm+abc", "hawk x", "4111111111111111", "411111111111", "41111111111", "cvv 123", "12 3", "{1}", `"x"`, "[0]", " lead",
			"A. Plain and rather long text without anything that anybody looks for, in more than sixty-four bytes, twice", "J", "a%20b", "é", "", "ab", "\x00", "x\ty", "digest +"} {
			src = append(src, text...)
			ends = append(ends, len(src))
		}
		checkSift(t, e, s, src, ends)
	}
	rnd := rand.New(rand.NewPCG(7, 11))
	signs := []byte("abcdefgrerkeyest ic+ %&:;<=>\\J0123456789{[\"\x00\t\n\x7f\x80\xc3\xff-./@`BEARER")
	for range 3000 {
		src := make([]byte, 1+rnd.IntN(300))
		for i := range src {
			src[i] = signs[rnd.IntN(len(signs))]
			if rnd.IntN(8) == 0 {
				src[i] = byte(rnd.Uint32())
			}
		}
		var ends []int
		for at := 0; at <= len(src); at += 1 + rnd.IntN(30) {
			ends = append(ends, at)
		}
		checkSift(t, e, s, src, ends)
	}
}

// FuzzSift looks for a text that is plain and not kept.
func FuzzSift(f *testing.F) {
	f.Add([]byte("a bearer abcdefgh"), 2, 17)
	f.Add([]byte("\x0641111111111111"), 1, 15)
	r, err := New(Config{}, Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, src []byte, from, to int) {
		if len(src) == 0 || from < 0 || to < from || to > len(src) {
			return
		}
		checkSift(t, r.NewEditor(), &pipeline.Sieve{}, src, []int{from, to})
	})
}
