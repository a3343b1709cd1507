//go:build race

package decide

const raceEnabled = true
