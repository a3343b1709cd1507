package custody

import (
	"strconv"

	"reprieve.dev/pipeline"
)

// custodianMeters are the custodian's metrics; all of them are quiet without a Meter.
type custodianMeters struct {
	m                                       pipeline.Meter
	new, seen, repeated, failed, raw, fails pipeline.Counter
}

func newCustodianMeters(m pipeline.Meter) custodianMeters {
	c := custodianMeters{m: m}
	if m == nil {
		return c
	}
	letters := func(result string) pipeline.Counter {
		return m.Counter("reprieve_custodian_letters_total", "Letters that the custodian took into the ledger.", "result", result)
	}
	c.new, c.seen, c.repeated = letters("new"), letters("seen"), letters("repeated")
	c.failed = m.Counter("reprieve_redrive_returned_total", "Redriven items that came back as letters.")
	c.raw = m.Counter("reprieve_custodian_damaged_total", "Messages that could not be read and were kept raw.")
	c.fails = m.Counter("reprieve_custodian_ledger_failures_total", "Writes that the ledger did not take; the custodian waits and repeats them.")
	return c
}

func (c *custodianMeters) on() bool { return c.m != nil }

func (c *custodianMeters) took(a Admitted) {
	if c.m == nil {
		return
	}
	c.new.Add(float64(a.New))
	c.seen.Add(float64(a.Seen))
	c.repeated.Add(float64(a.Repeated))
	c.failed.Add(float64(a.Failed))
}

func (c *custodianMeters) damaged() {
	if c.m != nil {
		c.raw.Add(1)
	}
}

func (c *custodianMeters) failure() {
	if c.m != nil {
		c.fails.Add(1)
	}
}

func (c *custodianMeters) lagSeconds(tp pipeline.TP, s float64) {
	if c.m != nil {
		c.m.Gauge("reprieve_custodian_lag_seconds", "Age of the newest message that the ledger has, when it was taken.", labels(tp)...).Set(s)
	}
}

func (c *custodianMeters) lagRecords(tp pipeline.TP, n int64) {
	if c.m != nil {
		c.m.Gauge("reprieve_custodian_lag_records", "Messages that the ledger does not have yet.", labels(tp)...).Set(float64(max(0, n)))
	}
}

// forget: a partition that is somebody else's has no lag here.
func (c *custodianMeters) forget(tp pipeline.TP) {
	c.lagSeconds(tp, 0)
	c.lagRecords(tp, 0)
}

func labels(tp pipeline.TP) []string {
	return []string{"topic", tp.Topic, "partition", strconv.Itoa(int(tp.Partition))}
}
