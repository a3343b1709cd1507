package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
)

// register tries to register the hostile program under a name that says what it does before the handshake.
func register(w *world, name string) error {
	pkg, err := plugins.Read(folder(w.t, name))
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = w.Register(context.Background(), pkg)
	return err
}

func TestAStartThatIsNoHandshakeIsRefused(t *testing.T) {
	for _, l := range []sandbox.Level{sandbox.Isolated, sandbox.Restricted} {
		t.Run(l.String(), func(t *testing.T) {
			quick := open(t, func(o *plugins.Options) { o.Most = l })
			short := open(t, func(o *plugins.Options) { o.Start = time.Second; o.Most = l }) // for those who never come to an end
			for _, w := range []*world{quick, short} {                                       // a host keeps the sealed program that it has started once
				_ = register(w, "exits")
			}
			for name, want := range map[string]string{
				"silent": "no handshake within the start limit", "dribble": "no handshake within the start limit", "flood-first": "before the handshake",
				"exits": "exit status 3", "tcp": "before the handshake", "outside": "socket folder", "dotdot": "before the handshake",
				"certificate": "before the handshake", "file": "does not say what it is", "link": "", "future": "incompatible", "mute": "",
			} {
				t.Run(name, func(t *testing.T) {
					w := quick
					if name == "silent" || name == "dribble" || name == "mute" {
						w = short
					}
					was := w.now(t)
					err := register(w, name)
					w.back(t, was)
					if c := pipeline.CodeOf(err); c != pipeline.CodePluginHandshake || !strings.Contains(err.Error(), want) {
						t.Errorf("%v", err)
					}
					if err != nil {
						noCard(t, "the error", err.Error())
					}
				})
			}
			noCard(t, "the log", quick.log.String()+short.log.String())
		})
	}
}

func TestCaseC52PrintedWordsDoNotReachTheProtocolOrTheLog(t *testing.T) {
	t.Run("A: printed before it serves", func(t *testing.T) {
		w := open(t, nil)
		err := register(w, "junk-first")
		e, ok := errors.AsType[*pipeline.Error](err)
		if !ok || e.Code != pipeline.CodePluginHandshake || !strings.Contains(e.Text, "starting...") || !strings.Contains(e.Fix(), "standard error") {
			t.Fatalf("%v", err)
		}
	})
	w := open(t, nil)
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	fine := func(t *testing.T, value string) {
		t.Helper()
		if out := repair(t, tr, value); out[0].Failure != nil || string(out[0].Value) != "fixed" {
			t.Fatal(out[0].Failure)
		}
	}
	t.Run("B: lines on standard output in every call", func(t *testing.T) {
		for range 5 {
			fine(t, "stdout")
		}
	})
	t.Run("C: 10 MiB on standard error without a newline", func(t *testing.T) {
		before := len(w.log.String())
		fine(t, "stderr")
		if n := len(w.log.String()) - before; n > 2<<20 {
			t.Fatalf("the log grew by %d bytes", n)
		}
	})
	t.Run("D: a card number on standard error", func(t *testing.T) {
		w := open(t, nil)
		w.install(sandbox.Restricted)
		tr, err := w.transform("")
		if err != nil {
			t.Fatal(err)
		}
		out := repair(t, tr, "say: {\"card\":\"4111111111111111\"}", "say: 5555555555554444", "note: 4111111111111111", "reason: 4111 1111 1111 1111")
		noCard(t, "a note", strings.Join(out[2].Report.Notes, " "))
		if out[3].Failure == nil {
			t.Fatal("it was not rejected")
		}
		for _, p := range out[3].Failure.Params {
			noCard(t, "a reason", p.Text)
		}
		deadline := time.Now().Add(5 * time.Second)
		for !strings.Contains(w.log.String(), "again") {
			if time.Now().After(deadline) {
				t.Fatal("the line was not logged at all: " + w.log.String())
			}
		}
		noCard(t, "the log", w.log.String())
		if strings.Contains(w.log.String(), "\x1b") || strings.Contains(w.log.String(), `\u001b`) {
			t.Error("the log holds an escape")
		}
	})
}
