// Package services starts the real servers that tests talk to: Apache Kafka, a worker of Kafka Connect, PostgreSQL, a schema
// registry, a server with Vault's transit API, one with the API of S3. A test
// asks for one by name and gets an address; the first to ask starts it, and it stops with the test process however that
// ends.
//
// Servers that run already are used instead when the environment names them: REPRIEVE_TEST_KAFKA (bootstrap servers),
// REPRIEVE_TEST_POSTGRES (URL of a role that may create databases) and REPRIEVE_TEST_REGISTRY (base URL). So one set serves
// all test binaries of a run: command services beside this package starts it.
//
// What has to be downloaded is kept in the user's cache folder, under reprieve-test. A test is skipped, with the reason,
// when a server cannot be had; with CI=true Kafka and PostgreSQL must start, and the test fails.
package services

// TB is what of testing.TB is needed here.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
}
