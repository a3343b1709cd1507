package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/plugins/sdk"
	"reprieve.dev/plugins/wire"
	"reprieve.dev/transforms"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Verb {
		sandbox.Main()
	}
}

// invoice is 1.2 KiB with a currency to be mended at its end.
func invoice() []byte {
	return []byte(`{"invoice_id":"inv-1","lines":[` + strings.Repeat(`{"sku":"a-100","quantity":2,"net_minor":"1250"},`, 23) + `{}],"currency":"euro"}`)
}

// BenchmarkRepairPlugin repairs batches of 64 through the isolated process, and by the same code in this process.
func BenchmarkRepairPlugin(b *testing.B) {
	const batch = 64
	b.Run("isolated", func(b *testing.B) {
		dir := b.TempDir()
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "normalize-currency"), ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		about, err := os.ReadFile(plugins.DescriptorFile)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, plugins.DescriptorFile), about, 0o644); err != nil {
			b.Fatal(err)
		}
		ctx := context.Background()
		o := plugins.Options{Dir: filepath.Join(dir, "installed"), Lock: filepath.Join(dir, "plugins.lock"), Clock: time.Now}
		h, err := plugins.Open(ctx, o)
		if err != nil {
			b.Skip(err)
		}
		defer h.Close()
		pkg, did, err := h.Install(ctx, dir)
		if err != nil {
			b.Fatal(err)
		}
		if did.Level != "isolated" {
			b.Skip("level isolated cannot be had here")
		}
		lock := &plugins.Lock{}
		lock.Set(pkg.Pin(sandbox.Isolated))
		if err := lock.Write(o.Lock); err != nil {
			b.Fatal(err)
		}
		lib := transforms.NewLibrary(transforms.Options{})
		kinds, err := h.Kinds(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for _, k := range kinds {
			if err := lib.Add(k); err != nil {
				b.Fatal(err)
			}
		}
		tr, err := lib.Parse("acme/normalize-currency@1.4.2", nil)
		if err != nil {
			b.Fatal(err)
		}
		in := make([]transforms.Envelope, batch)
		for i := range in {
			in[i] = transforms.Envelope{Item: pipeline.ID(fmt.Sprint("q", i)), Topic: "invoices", Record: pipeline.Record{Key: []byte("k"), Value: invoice()}, Schema: "json"}
		}
		b.ResetTimer()
		for b.Loop() {
			out, err := tr.Repair(ctx, in)
			if err != nil || out[batch-1].Failure != nil {
				b.Fatal(err, out[batch-1].Failure)
			}
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "items/s")
	})
	b.Run("in-process", func(b *testing.B) {
		s := sdk.NewServer(sdk.About{}, &normalizer{})
		ctx := context.Background()
		if _, err := s.Configure(ctx, &wire.ConfigureRequest{Config: []byte("{}")}); err != nil {
			b.Fatal(err)
		}
		req := &wire.RepairRequest{}
		for i := range batch {
			req.Envelopes = append(req.Envelopes, &wire.Envelope{Item: fmt.Sprint("q", i), Value: &wire.Nullable{Value: invoice()}})
		}
		for b.Loop() {
			if _, err := s.Repair(ctx, req); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "items/s")
	})
}
