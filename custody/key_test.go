package custody

import (
	"testing"

	"reprieve.dev/seal"
)

func testKey(t *testing.T) *seal.IdentityKey {
	t.Helper()
	k, err := seal.NewIdentityKey("id1", []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}
