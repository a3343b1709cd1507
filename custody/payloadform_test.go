package custody

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
)

func FuzzUnpackHeaders(f *testing.F) {
	f.Add(packHeaders(nil))
	f.Add(packHeaders([]pipeline.Header{{Name: "a", Value: nil}, {Name: "", Value: []byte{}}, {Name: "\xff", Value: []byte{0, 1}}}))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		hs, err := unpackHeaders(b)
		if err != nil {
			if pipeline.CodeOf(err) != pipeline.CodeLedgerCorrupt {
				t.Fatal(err)
			}
			return
		}
		again, err := unpackHeaders(packHeaders(hs))
		if err != nil || cmp.Diff(hs, again) != "" {
			t.Fatal(hs, again, err)
		}
	})
}

func TestPayloadDigestsTellNullFromEmpty(t *testing.T) {
	k := testKey(t)
	seen := map[string]string{}
	for name, b := range map[string][2][]byte{"null, null": {nil, nil}, "null, empty": {nil, {}}, "empty, null": {{}, nil}, "empty, empty": {{}, {}}, "a, b": {{'a'}, {'b'}}, "ab, empty": {{'a', 'b'}, {}}} {
		d := string(payloadDigest(k, b[0], b[1], nil))
		if other, ok := seen[d]; ok || len(d) != 32 {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
}

func TestDigestsAreStoredShortAndComeBack(t *testing.T) {
	for _, d := range []pipeline.Digest{"", "sha256:null", "sha256:00", "x", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855", "hmac256:k:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"} {
		if got := unpackDigest(packDigest(d)); got != d {
			t.Errorf("%q comes back as %q", d, got)
		}
	}
	if n := len(packDigest("sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")); n != 33 {
		t.Error(n)
	}
}
