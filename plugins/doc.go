// Package plugins runs third-party transforms in processes of their own. To the caller they are transforms like the built-ins.
//
// What a plugin does costs a record, never the host: a crash, a hang, a flood, an answer that is too large, wrong or different
// from the one before is a failure of typed code on the record that caused it, found by halving the batch (INV-PLUGIN-BLAME).
// Only what plugins.lock pins by digest runs, and the bytes that were verified are the bytes that run (INV-PLUGIN-ARTIFACT).
// What a plugin writes is bounded, redacted and logged as data (INV-PLUGIN-LOG).
//
// Reading order: descriptor.go, lock.go, host.go, remote.go, call.go, parts.go, answer.go, process.go, runner.go, room_linux.go, logs.go;
// conform.go; wire/transform.proto is the protocol, sandbox the walls.
package plugins
