package redact

// ibanBefore says that the digits in [from, to) stand inside an international bank account number (ISO 13616): two letters
// and two digits at its start, at most 34 signs in groups, remainder 1 by 97.
func ibanBefore(b []byte, from, to int) bool {
	for start := max(0, from-12); start < from; start++ {
		if start > 0 && alnum(b[start-1]) || !letter(b[start]) || start+4 > len(b) || !letter(b[start+1]) || !digit(b[start+2]) || !digit(b[start+3]) {
			continue
		}
		if ibanEnd(b, start) >= to {
			return true
		}
	}
	return false
}

// ibanEnd is where the longest valid account number that starts at i ends, -1 if there is none.
func ibanEnd(b []byte, i int) int {
	var buf [34]byte
	n, end := 0, -1
	for k := i; k < len(b) && n < len(buf); k++ {
		if !alnum(b[k]) {
			if b[k] != ' ' && b[k] != '-' {
				break
			}
			continue
		}
		buf[n] = b[k]
		n++
		if n >= 15 && (k+1 == len(b) || !alnum(b[k+1])) && mod97(buf[:n]) == 1 {
			end = k + 1
		}
	}
	return end
}

func mod97(v []byte) int {
	rest := 0
	for i := range v {
		c := v[(i+4)%len(v)]
		if digit(c) {
			rest = (rest*10 + int(c-'0')) % 97
		} else {
			rest = (rest*100 + int(c|0x20-'a') + 10) % 97
		}
	}
	return rest
}
