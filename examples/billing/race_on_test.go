//go:build race

package billing_test

const raceEnabled = true
