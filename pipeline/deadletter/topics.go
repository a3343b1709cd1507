package deadletter

// ControlTopic is the compacted topic of worker state: breaker, blocked keys, policy, rates, halt.
func ControlTopic(prefix string) string { return prefix + ".control" }

// VaultTopic is where the sealed records of a dead-letter topic stand, on the same cluster.
func VaultTopic(quarantine string) string { return quarantine + ".vault" }

// SettlementsTopic is where each commit says what became of its interval.
func SettlementsTopic(prefix string) string { return prefix + ".settlements" }

// RangesTopic holds the exact offsets that an incident keeps in the source.
func RangesTopic(prefix string) string { return prefix + ".ranges" }

// OutcomesTopic holds what became of redriven records.
func OutcomesTopic(prefix string) string { return prefix + ".outcomes" }

// AuditTopic holds the signed heads of the history chain.
func AuditTopic(prefix string) string { return prefix + ".audit" }
