package worker

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

// A pipeline seals to the newest key that the control topic says, from the moment that it says so, and never goes back.
func TestAPipelineSealsToTheNewestPublishedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const topic = "reprieve.control"
		ring, err := seal.NewRing([]seal.Key{{ID: "k1", Secret: bytes.Repeat([]byte{7}, 32)}})
		if err != nil {
			t.Fatal(err)
		}
		c := script.New(time.Now().UnixMilli())
		c.CreateTopic(topic, 1, map[string]string{"cleanup.policy": "compact"})
		board := control.NewBoard(control.Options{Topic: topic, Reader: c.Log(nil), Sink: c.Sink(script.SinkOptions{}), Authority: &control.Authority{Ring: ring}, Clock: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = board.Run(ctx) }() // it ends with ctx
		if err := board.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		keys := &publicKeys{board: board, pipeline: "billing", known: map[string]publicKey{}}
		sealer := seal.NewSealer(keys.of, seal.SealerOptions{Clock: time.Now})
		go keys.follow(ctx, sealer)
		publish := func(pipelineName, tenant, kid string, version int64) {
			t.Helper()
			key, err := seal.GeneratePrivateKey(kid)
			if err != nil {
				t.Fatal(err)
			}
			if err := board.Publish(ctx, control.ByRing(ring), control.NewSealKey(pipelineName, tenant, key.Public(), version, "ledger")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // of the bubble's time: who follows has seen it
			synctest.Wait()
		}
		sealedTo := func(tenant, kid string) {
			t.Helper()
			_, enc, err := sealer.Seal(tenant, []byte("x"), []byte("q"))
			if err != nil || !strings.HasPrefix(enc, "hpke1;"+kid+";") {
				t.Errorf("%s is sealed to %.20s, want %s: %v", tenant, enc, kid, err)
			}
		}
		if _, _, err := sealer.Seal("acme", []byte("x"), []byte("q")); pipeline.CodeOf(err) != pipeline.CodeKeyUnpublished {
			t.Errorf("sealed without a key: %v", err)
		}
		publish("adjustments", "", "pother.1", 1)
		if _, _, err := sealer.Seal("acme", []byte("x"), []byte("q")); pipeline.CodeOf(err) != pipeline.CodeKeyUnpublished {
			t.Errorf("sealed to the key of another pipeline: %v", err)
		}
		publish("billing", "", "pbilling.1", 1)
		sealedTo("acme", "pbilling.1")
		sealedTo(pipeline.TenantUnassigned, "pbilling.1")
		publish("", "acme", "tacme.1", 1)
		sealedTo("acme", "tacme.1")
		sealedTo("globex", "pbilling.1")
		publish("", "acme", "tacme.2", 2)
		sealedTo("acme", "tacme.2")
		publish("", "acme", "tacme.1", 1) // somebody's late word about an older one
		sealedTo("acme", "tacme.2")
		time.Sleep(time.Hour) // no custodian runs: what a key says has no lease
		sealedTo("acme", "tacme.2")
		publish("", pipeline.TenantUnassigned, "tnobody.1", 1)
		sealedTo(pipeline.TenantUnassigned, "pbilling.1")
		cancel()
		synctest.Wait()
	})
}
