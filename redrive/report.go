package redrive

import (
	"cmp"
	"fmt"
	"maps"
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
	line("  selected       %s; %d in the plan, %d left out%s", items(r.Selected), r.Items, r.Selected-r.Items, because(r.Excluded))
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
	for _, c := range sortedSamples(r.CannotGo) {
		s := r.CannotGo[c]
		ids := make([]string, 0, 3)
		for _, id := range s.Items[:min(3, len(s.Items))] {
			ids = append(ids, string(id))
		}
		line("  cannot go      %s: %s, as %s", items(s.Count), c, strings.Join(ids, ", "))
	}
	for _, c := range sortedNames(r.Undecoded) {
		line("  fail again     %s at decode: %s", items(r.Undecoded[c]), c)
	}
	for _, c := range sortedSamples(r.FailAgain) {
		line("  fail again     %s in the pipeline's stages: %s", items(r.FailAgain[c].Count), c)
	}
	for _, what := range sortedNames(r.Missing) {
		line("  missing        %d items have no %s any more", r.Missing[what], what)
	}
	if r.Superseded > 0 {
		line("  superseded     %d items are not sent: a newer state takes their place", r.Superseded)
	}
	switch {
	case r.Asked > 0:
		line("  asked first    %s: what has its effect already is closed without a send", items(r.Asked))
	case r.Horizon.Past+r.Horizon.Unknown > 0:
		line("  duplicates     up to %d: nothing recognises an effect that exists already", r.Horizon.Past+r.Horizon.Unknown)
	default:
		line("  duplicates     none expected: the destination recognises %s", items(r.Horizon.Within))
	}
	if r.Again > 0 {
		line("  sent before    %d items were redriven earlier", r.Again)
	}
	for _, s := range sortedNames(r.Schemas) {
		line("  schema         %s read as %s", items(r.Schemas[s]), s)
	}
	for _, p := range r.PartitionNumbers() {
		line("  partition %-4s %s", p, items(r.Partitions[p]))
	}
	if r.Live.Waiting >= 0 {
		text := ""
		if r.Live.Share != "" {
			text = ", this adds " + r.Live.Share
		}
		line("  live records   %d wait, %d a second are done%s", r.Live.Waiting, max(0, r.Live.PerSecond), text)
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

// PartitionNumbers are the partitions that the records would go to, in their order.
func (r *Report) PartitionNumbers() []string {
	return slices.SortedFunc(maps.Keys(r.Partitions), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
}

// items is a count with its noun.
func items(n int64) string {
	if n == 1 {
		return "1 item"
	}
	return fmt.Sprintf("%d items", n)
}

func sortedSamples(m map[string]Sample) []string { return slices.Sorted(maps.Keys(m)) }

func sortedNames(m map[string]int64) []string {
	return slices.Sorted(maps.Keys(m))
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
