package redact

// blank passes white space.
func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

func hasBackslash(s []byte) bool {
	for _, c := range s {
		if c == '\\' {
			return true
		}
	}
	return false
}

// unquote resolves the escapes of one JSON string exactly. pos has one entry more than dst.
func unquote(s, dst []byte, pos []int32) ([]byte, []int32, bool) {
	dst, pos = dst[:0], pos[:0]
	for i := 0; i < len(s); {
		c, at := s[i], int32(i)
		if c != '\\' {
			dst, pos = append(dst, c), append(pos, at)
			i++
			continue
		}
		if i+1 == len(s) {
			return dst, pos, false
		}
		switch c = s[i+1]; c {
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case '"', '\\', '/':
		case 'u':
			if i+6 > len(s) {
				return dst, pos, false
			}
			v, ok := hexValue(s[i+2 : i+6])
			if !ok {
				return dst, pos, false
			}
			from := len(dst)
			dst = append(dst, string(rune(v))...)
			for range len(dst) - from {
				pos = append(pos, at)
			}
			i += 6
			continue
		default:
			return dst, pos, false
		}
		dst, pos = append(dst, c), append(pos, at)
		i += 2
	}
	return dst, append(pos, int32(len(s))), true
}

// stringEnd is behind the closing quotation mark of the string at i, -1 if it is not a JSON string.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i++
		case c < ' ':
			return -1
		}
	}
	return -1
}

// numberEnd is behind the JSON number at i, -1 if it is none.
func numberEnd(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	n := i
	for i < len(b) && digit(b[i]) {
		i++
	}
	if i == n || b[n] == '0' && i > n+1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		n = i + 1
		for i = n; i < len(b) && digit(b[i]); i++ {
		}
		if i == n {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n = i
		for i < len(b) && digit(b[i]) {
			i++
		}
		if i == n {
			return -1
		}
	}
	return i
}
