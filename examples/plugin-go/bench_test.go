package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
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

// host is a host with the built plugin pinned at level isolated.
func host(b *testing.B) (*plugins.Host, *plugins.Package) {
	b.Helper()
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
	o := plugins.Options{Dir: filepath.Join(dir, "installed"), Lock: filepath.Join(dir, "plugins.lock"), Clock: time.Now}
	h, err := plugins.Open(context.Background(), o)
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(h.Close)
	pkg, did, err := h.Install(context.Background(), dir)
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
	return h, pkg
}

// transform is the plugin with a configuration; each one has a process of its own.
func transform(b *testing.B, h *plugins.Host, config string) transforms.Transform {
	b.Helper()
	lib := transforms.NewLibrary(transforms.Options{})
	kinds, err := h.Kinds(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for _, k := range kinds {
		if err := lib.Add(k); err != nil {
			b.Fatal(err)
		}
	}
	tr, err := lib.Parse("acme/normalize-currency@1.4.2", []byte(config))
	if err != nil {
		b.Fatal(err)
	}
	return tr
}

// cpu is the processor time that this process and its living children have had, in seconds.
func cpu(b *testing.B) float64 {
	b.Helper()
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	all := float64(own.Utime.Nano()+own.Stime.Nano()) / 1e9
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(f) < 14 || f[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, ticks := range f[11:13] {
			n, err := strconv.ParseFloat(ticks, 64)
			if err != nil {
				b.Fatal(err)
			}
			all += n / 100 // ticks of the kernel's interface, always 100 a second
		}
	}
	return all
}

// BenchmarkRepairPlugin repairs batches of 64 through the isolated process, and by the same code in this process.
func BenchmarkRepairPlugin(b *testing.B) {
	const batch = 64
	b.Run("isolated", func(b *testing.B) {
		h, _ := host(b)
		tr := transform(b, h, "")
		in := make([]transforms.Envelope, batch)
		for i := range in {
			in[i] = transforms.Envelope{Item: pipeline.ID(fmt.Sprint("q", i)), Topic: "invoices", Record: pipeline.Record{Key: []byte("k"), Value: invoice()}, Schema: "json"}
		}
		ctx := context.Background()
		before := cpu(b)
		b.ResetTimer()
		for b.Loop() {
			out, err := tr.Repair(ctx, in)
			if err != nil || out[batch-1].Failure != nil {
				b.Fatal(err, out[batch-1].Failure)
			}
		}
		elapsed := b.Elapsed().Seconds()
		b.ReportMetric(float64(b.N*batch)/(cpu(b)-before), "items/core-s") // both sides together
		b.ReportMetric(float64(b.N*batch)/elapsed, "items/s")
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
		before := cpu(b)
		for b.Loop() {
			if _, err := s.Repair(ctx, req); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*batch)/(cpu(b)-before), "items/core-s")
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "items/s")
	})
}

// BenchmarkPluginStart starts the isolated plugin until it has said what it is, and ends it.
func BenchmarkPluginStart(b *testing.B) {
	h, pkg := host(b)
	for b.Loop() {
		again, err := plugins.Read(pkg.Dir)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := h.Register(context.Background(), again); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/start")
}

// BenchmarkPluginMemory is what the host keeps for one running plugin.
func BenchmarkPluginMemory(b *testing.B) {
	h, _ := host(b)
	kept := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse + m.StackInuse)
	}
	const running = 6
	for b.Loop() {
		before := kept()
		for i := range running {
			tr := transform(b, h, fmt.Sprintf(`{"field":"field%d-%d"}`, b.N, i))
			if _, err := tr.Repair(context.Background(), []transforms.Envelope{{Item: "q", Record: pipeline.Record{Value: invoice()}}}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((kept()-before)/running/(1<<20), "MiB/plugin")
	}
}
