//go:build race

package call_test

const raceEnabled = true
