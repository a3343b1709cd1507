package config

import "strings"

// Nearest is a suggestion for a name that is not known: the one that was probably meant, or the few there are; "" when
// neither helps.
func Nearest(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	if len(known) > 0 && len(known) <= 12 {
		return "known here: " + strings.Join(known, ", ")
	}
	return ""
}
