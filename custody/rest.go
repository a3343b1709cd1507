package custody

import "regexp"

// varying is what differs in the messages of one cause: ids, times, addresses, long numbers, and what stands in quotes. Short
// numbers stay: a status of 404 and one of 500 are two causes.
var varying = regexp.MustCompile(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}` +
	`|\d{4}-\d\d-\d\d[t ]\d\d:\d\d:\d\d[0-9.:z+-]*` +
	`|\d{1,3}(\.\d{1,3}){3}(:\d+)?` +
	`|\b[0-9a-f]*\d[0-9a-f]{7,}\b|\d{5,}` +
	`|@[0-9a-f]{5,}` +
	`|"[^"]{0,200}"`)

const maxRest = 200

// rest is what a message says about its cause: without what varies from record to record, and bounded.
func rest(message string) string {
	out := varying.ReplaceAllString(message, "#")
	if r := []rune(out); len(r) > maxRest {
		out = string(r[:maxRest])
	}
	return out
}
