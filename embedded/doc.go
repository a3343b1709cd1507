// Package embedded is what a laptop runs instead of servers: a broker that speaks the Kafka protocol and keeps its data in a
// folder, and a small schema registry. Both listen on 127.0.0.1 only. They are for demonstrations, trials and tests; a crash
// of the machine may lose what was written last.
package embedded
