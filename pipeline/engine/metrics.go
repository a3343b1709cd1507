package engine

import "reprieve.dev/pipeline"

// metrics are made once; the hot path only adds.
type metrics struct {
	received pipeline.Counter
	disposed [8]pipeline.Counter
	stale    pipeline.Counter
	stalls   pipeline.Counter
	ingress  pipeline.Counter
	aborts   pipeline.Counter
	policy   pipeline.Counter
	budget   pipeline.Counter
	unclean  pipeline.Counter
}

func newMetrics(o Options) metrics {
	p := []string{"pipeline", o.Pipeline}
	m := metrics{
		received: o.Meter.Counter("reprieve_records_received_total", "Records read from source and retry topics.", p...),
		stale:    o.Meter.Counter("reprieve_stale_records_total", "Results of an earlier assignment or a second read, dropped.", p...),
		stalls:   o.Meter.Counter("reprieve_partition_stalls_total", "Times a partition paused because a record may neither go on nor leave.", p...),
		aborts:   o.Meter.Counter("reprieve_transactions_aborted_total", "Transactions that were undone and read again.", p...),
		policy:   o.Meter.Counter("reprieve_policy_failures_total", "Times a rule of the policy could not be evaluated (ALERT_POLICY_FAILED).", p...),
		budget:   o.Meter.Counter("reprieve_error_budget_exceeded_total", "Times the pipeline halted because of failures that nobody has classified (ERR_ERROR_BUDGET_EXCEEDED).", p...),
		unclean:  o.Meter.Counter("reprieve_unclean_starts_total", "Partitions that were taken over after a crash, with records in work.", p...),
		ingress:  o.Meter.Counter("reprieve_dlq_ingress_failures_total", "Dead letters or probes that the dead-letter topic refused (ALERT_DLQ_INGRESS_FAILED).", p...),
	}
	for d := pipeline.Delivered; d <= pipeline.Ranged; d++ {
		m.disposed[d] = o.Meter.Counter("reprieve_records_total", "Records by what was done with them.", append(p[:2:2], "disposition", d.String())...)
	}
	return m
}
