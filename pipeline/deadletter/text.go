package deadletter

import (
	"strings"
	"unicode/utf8"
)

// Limits of the profile "death", in characters and frames.
const (
	MaxReason = 512
	MaxStack  = 2048
	MaxFrames = 10
)

// cleanText makes s valid UTF-8 without NUL: each byte that cannot stand is one U+FFFD. Text that is fine is returned as it
// is.
func cleanText(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == 0 || r == utf8.RuneError && n == 1 {
			b.WriteRune(utf8.RuneError)
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// cutChars returns the first n characters of valid UTF-8. It never ends inside a character.
func cutChars(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// cutBytes returns at most n bytes of valid UTF-8, never ending inside a character.
func cutBytes(s string, n int) string {
	if n <= 0 {
		return ""
	}
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Reason is text as X-Death-Reason carries it: valid UTF-8, no NUL, at most MaxReason characters.
func Reason(text string) string { return cutChars(cleanText(text), MaxReason) }

// Stack is a stack trace as X-Exception-Stack carries it: valid UTF-8, no NUL, at most MaxFrames frames and MaxStack
// characters. A frame is a line "at ..." (Java, .NET, JavaScript), or a call line with its indented place (Go, Python); where
// neither is found every line is one. The lines before the first frame, which say what happened, are kept.
func Stack(text string) string {
	s := strings.TrimRight(cleanText(text), "\n")
	isFrame := frameRule(s)
	frames := 0
	for at := 0; at < len(s); {
		end := strings.IndexByte(s[at:], '\n')
		next := len(s)
		if end >= 0 {
			next = at + end + 1
			end += at
		} else {
			end = len(s)
		}
		if isFrame(s[at:end]) {
			frames++
			if frames == MaxFrames {
				s = s[:end]
				break
			}
		}
		at = next
	}
	return cutChars(s, MaxStack)
}

// frameRule picks how this trace spells a frame: by its first 64 lines, because a message may hold anything.
func frameRule(s string) func(string) bool {
	isAt := func(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " \t"), "at ") }
	isIndented := func(line string) bool { return line != "" && (line[0] == '\t' || strings.HasPrefix(line, "    ")) }
	isLine := func(line string) bool { return true }
	indented := false
	for range 64 {
		line, rest, more := strings.Cut(s, "\n")
		if isAt(line) {
			return isAt
		}
		indented = indented || isIndented(line)
		if !more {
			break
		}
		s = rest
	}
	if indented {
		return isIndented
	}
	return isLine
}
