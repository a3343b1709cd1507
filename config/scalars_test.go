package config

import (
	"math"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "100ms": 100 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "1h30m": 90 * time.Minute,
		"30d": 30 * 24 * time.Hour, "720h": 720 * time.Hour, "1d12h": 36 * time.Hour, "250us": 250 * time.Microsecond,
		"106751d": 106751 * 24 * time.Hour, "0.5d": 12 * time.Hour, "9223372036854775807ns": math.MaxInt64,
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
		back, err := ParseDuration(Duration(want).String())
		if err != nil || back != want {
			t.Errorf("%v is written %q and read %v, %v", want, Duration(want), back, err)
		}
	}
	for _, text := range []string{"", "5", "-1s", "1 s", "s", "1x", "1m2", "1.s", ".5s", "1e3s", "106752d", "9223372036854775808ns", "99999999999999999999s", "1.99999999999s", "30 d", "1D"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	for d, want := range map[Duration]string{0: "0s", Duration(720 * time.Hour): "30d", Duration(90 * time.Second): "1m30s", Duration(100 * time.Millisecond): "100ms"} {
		if d.String() != want {
			t.Errorf("%d is written %q, not %q", d, d, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{"512B": 512, "0B": 0, "1KiB": 1024, "1MiB": 1 << 20, "8GiB": 8 << 30, "1MB": 1e6, "1.5MiB": 3 << 19, "1kB": 1000, "1TiB": 1 << 40} {
		if got, fail := parseSize(text); fail != "" || got != want {
			t.Errorf("%q is %d, %s", text, got, fail)
		}
	}
	for _, text := range []string{"", "5", "-1B", "1 MiB", "MiB", "1mib", "1.5B", "1.25MiB", "9999999TiB", "99999999999999999999B", "1e3B"} {
		if got, fail := parseSize(text); fail == "" {
			t.Errorf("%q is read as %d", text, got)
		}
	}
	for s, want := range map[Size]string{1 << 20: "1MiB", 1536: "1536B", 0: "0B", 3 << 30: "3GiB"} {
		if s.String() != want {
			t.Errorf("%d is written %q", s, s)
		}
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{"50/s": {50, time.Second}, "600/m": {600, time.Minute}, "1/10s": {1, 10 * time.Second}, "0/s": {0, time.Second}} {
		got, fail := parseRate(text)
		if fail != "" || got != want || got.String() != text {
			t.Errorf("%q is %v (%q), %s", text, got, got, fail)
		}
	}
	for _, text := range []string{"", "50", "/s", "50/", "-1/s", "50/x", "50/0s", "5.5/s", "50 / s"} {
		if got, fail := parseRate(text); fail == "" {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	sixty := Rate{3600, time.Minute}
	if !sixty.Above(Rate{50, time.Second}) || (Rate{50, time.Second}).Above(Rate{3000, time.Minute}) || (Rate{3000, time.Minute}).Above(Rate{50, time.Second}) {
		t.Error("rates compare wrongly")
	}
	if got := (Rate{1, 10 * time.Second}).PerSecond(); got != 0.1 {
		t.Error(got)
	}
}
