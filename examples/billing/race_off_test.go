//go:build !race

package billing_test

const raceEnabled = false
