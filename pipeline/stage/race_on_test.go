//go:build race

package stage_test

const raceEnabled = true
