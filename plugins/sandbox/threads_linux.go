package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// threadsRoom is how many threads a user may have beside those of now before a plugin below level isolated cannot make another:
// enough that other programs of the user do not take its own away, and few enough that it cannot take everybody's.
const threadsRoom = 512

// threadsOf counts the threads of a user. Who ends meanwhile is not counted.
func threadsOf(uid int) (n int) {
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		theirs := false
		for line := range strings.Lines(string(text)) {
			name, rest, _ := strings.Cut(line, ":")
			f := strings.Fields(rest)
			switch {
			case len(f) == 0:
			case name == "Uid":
				theirs = f[0] == strconv.Itoa(uid)
			case name == "Threads" && theirs: // stands after Uid
				if k, err := strconv.Atoi(f[0]); err == nil {
					n += k
				}
			}
		}
	}
	return n
}
