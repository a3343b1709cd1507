package redrive

import (
	"fmt"
	"slices"
	"strings"
)

// Text is the report for somebody who owns the data, not the pipeline: what would happen, to how much, and what would not.
func (r *Report) Text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("Redrive of %s, tenant %s", r.Pipeline, r.Tenant)
	line("  plan           %s", r.Manifest)
	line("  looked at      %s", r.At)
	line("  selected       %d items; %d are in the plan, %d are left out%s", r.Selected, r.Items, r.Selected-r.Items, because(r.Excluded))
	line("  would be sent  %d (%s) to %s at %s, in about %s", r.WouldSend, size(r.Bytes), r.Destination, r.Rate, r.Duration)
	if r.Repaired > 0 {
		line("  repaired       %d of them as a registered repair made them, the rest as they were", r.Repaired)
	} else {
		line("  repaired       none: every record goes as it was")
	}
	for _, m := range r.Measures {
		text := ""
		if n := r.Unmeasured[m.Name]; n > 0 {
			text = fmt.Sprintf(" (%d items have no such number)", n)
		}
		line("  %-14s %s%s", m.Name, m.Sum, text)
	}
	codes := make([]string, 0, len(r.CannotGo))
	for c := range r.CannotGo {
		codes = append(codes, c)
	}
	slices.Sort(codes)
	for _, c := range codes {
		s := r.CannotGo[c]
		ids := make([]string, 0, 3)
		for _, id := range s.Items[:min(3, len(s.Items))] {
			ids = append(ids, string(id))
		}
		line("  cannot go      %d items: %s, as %s", s.Count, c, strings.Join(ids, ", "))
	}
	for _, c := range sortedNames(r.Undecoded) {
		line("  fail again     %d items at decode: %s", r.Undecoded[c], c)
	}
	if r.Deletes > 0 {
		line("  delete         %d records have no value: they delete what their key names", r.Deletes)
	}
	if r.Since > 0 {
		line("  new since      %d more items match by now; they are not in this plan", r.Since)
	}
	line("  first          %d items go first and must be confirmed before the rest", len(r.Canary))
	for _, n := range r.Notes {
		line("  note           %s", n)
	}
	return b.String()
}

func because(m map[string]int64) string {
	if len(m) == 0 {
		return ""
	}
	return " (" + reasons(m) + ")"
}

func sortedNames(m map[string]int64) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func size(n int64) string {
	const kib = 1 << 10
	switch {
	case n < 10*kib:
		return fmt.Sprintf("%d bytes", n)
	case n < 10*kib*kib:
		return fmt.Sprintf("%d KiB", n/kib)
	}
	return fmt.Sprintf("%d MiB", n/kib/kib)
}
