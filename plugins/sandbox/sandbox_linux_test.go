package sandbox

import (
	"context"
	"os"
	"testing"
	"time"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		Main()
	}
}

func TestEveryLevelThatIsHadBlocksTheAttacks(t *testing.T) {
	s := NewSpawner()
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, l := range []Level{Restricted, Isolated} {
		t.Run(l.String(), func(t *testing.T) {
			did, proof, err := s.Probe(ctx, Spec{Level: l})
			if err != nil {
				t.Fatalf("%v\n%v", err, proof)
			}
			if len(proof) < 15 || did.Level != l.String() {
				t.Fatal(did, proof)
			}
			t.Logf("%+v %v", did, proof)
		})
	}
}
