// Package control is the shared state of workers on one compacted topic: signed entries, their fold into an immutable
// Snapshot, and a Board that keeps the snapshot current and publishes.
//
//   - INV-CONTROL-SIGNED: an entry counts only with a signature of a key of the worker file: HMAC for workers, Ed25519 for
//     registered persons. Anything else is ignored, counted and alarmed (ALERT_CONTROL_FORGED).
//   - INV-CONTROL-COLD: a Board that has not read the topic to its end has no snapshot and is not ready; who must not act
//     without knowing asks Snapshot first. A warm one keeps what it knows and says how old that is (Stale).
//   - INV-CONTROL-HEALED: what is written over an entry and does not count, a tombstone or an older entry too, is followed by
//     the entry itself again: compaction keeps it.
//   - INV-CONTROL-STICKY: a halt ends only by lifts that name it, signed by as many different approvers as are needed. No
//     lease, no restart, no replay of older bytes ends it.
//
// The highest seq of a key wins. The state of a kind is the union over its writers: nobody can write another's key.
package control
