// Package kafka is the client of Kafka: pipeline's Source, Sink, Tx and Log over librdkafka, and the administration that
// the rest needs. It is the only home of confluent-kafka-go.
//
// Source, Sink and Tx move whole batches through a binding of our own over the librdkafka that confluent-kafka-go brings
// (native.h, and the files of that name): one crossing fetches a batch, one sends a Sending, and nothing of Go is called
// from C. Log and Admin, which few calls go through, use confluent-kafka-go itself.
//
// One goroutine owns a Source and calls all its methods. A Sink may be used by one sender; its completions come back over
// Done. Nothing here starts before the first call, and nothing is left after Close.
//
// Invariants, cited where they are upheld:
//
//	INV-KAFKA-OWN      a partition that is not assigned is never committed (a broker would accept it)
//	INV-KAFKA-ONCE     a Sending has exactly one completion
//	INV-KAFKA-NULL     null and empty stay apart in keys, values and headers, both ways
//	INV-KAFKA-PAUSE    a partition starts running after each assignment unless it was paused for that assignment
//	INV-KAFKA-ANSWER   every rebalance is answered exactly once, during Close too
package kafka
