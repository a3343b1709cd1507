// Package deadletter is the only place that knows what our Kafka messages look like, both ways: letters, retry and redrive
// messages with their signed trail, settlements and outcomes, and the dead letters of other systems.
//
// It is pure: bytes in, bytes out, no clock, no I/O. Everything written here is signed, and nothing that reads back is
// believed without its signature:
//
//   - INV-SIGN: no reprieve-* header of a message is used before its reprieve-sig was verified over the topic that it was
//     read from, the key, the value and every header that says anything (verify in sign.go).
//   - INV-IDENTITY: no limit ever shortens an identity header or the value; only the stack, the reason and the connect
//     profile give way, in that order (shrink in append.go).
//   - INV-ORDER: headers that are not ours leave in the order in which they came, repeats and nulls included (PassHeaders).
package deadletter
