package redact

// luhn checks the last digit of a run of ASCII digits (ISO/IEC 7812-1 annex B).
func luhn(d []byte) bool {
	sum, double := 0, false
	for i := len(d) - 1; i >= 0; i-- {
		v := int(d[i] - '0')
		if double {
			if v *= 2; v > 9 {
				v -= 9
			}
		}
		sum += v
		double = !double
	}
	return sum%10 == 0
}

// sameDigit says that a run is one digit repeated: filler, not a card.
func sameDigit(d []byte) bool {
	for _, c := range d[1:] {
		if c != d[0] {
			return false
		}
	}
	return true
}

// gtin checks the last digit of an article number: weights 3 and 1 (GS1).
func gtin(d []byte) bool {
	sum, three := 0, false
	for i := len(d) - 1; i >= 0; i-- {
		v := int(d[i] - '0')
		if three {
			v *= 3
		}
		sum += v
		three = !three
	}
	return sum%10 == 0
}
