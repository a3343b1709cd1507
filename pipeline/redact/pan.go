package redact

// maxGroups bounds a chain of digit groups; a longer one is a table of numbers.
const maxGroups = 24

// chain is digit groups with separators between: "4111 1111 1111 1111", "4111-1111-1111-1111", "4111111111111111".
type chain struct {
	from, to [maxGroups]int
	sep      [maxGroups]byte // after group i: the separator, spaces around it dropped
	loose    [maxGroups]bool // after group i: a space, or spaces around the separator: groups may be apart
	n        int
	full     bool // there were more groups
	goesOn   bool // it begins where a full one ended
}

// pans finds card numbers. What separates them from other numbers that pass Luhn: the issuer and its lengths; edges (a
// letter, a dash with a letter or digit beyond it, a decimal point make it part of something else); the shape of groups;
// what the field name or the words before it say; what a time looks like.
func (e *Editor) pans(t *reading, m meaning) {
	b := t.b
	c := &e.chain
	c.full = false
	done := -1 // where the chain before ended
	for i := 0; i < len(b); {
		if b[i] < '0' || b[i] > '9' {
			i++
			continue
		}
		goesOn := c.full && i == done
		end := c.read(b, i, m == meansCard)
		c.goesOn, done = goesOn, end
		total := 0
		for g := 0; g < c.n; g++ {
			total += c.to[g] - c.from[g]
		}
		if total >= minDigits {
			says := m
			if says >= meansReference && !alone(b, i, c.to[c.n-1]) {
				says = means // a text under the name of an identifier
			}
			e.judge(t, c, says, total)
		}
		i = end
	}
}

// alone says that b holds the number in [from, to) and nothing else.
func alone(b []byte, from, to int) bool {
	i, end := trim(b)
	return i == from && end == to
}

// read fills c from the group that starts at i and returns where it ends. wide allows separators that elsewhere stand
// between numbers.
func (c *chain) read(b []byte, i int, wide bool) int {
	c.n, c.full = 0, false
	for {
		from := i
		if c.n == maxGroups {
			c.full = true
			return from // the rest is a chain of its own: no group is left unjudged
		}
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		c.from[c.n], c.to[c.n] = from, i
		c.n++
		sep, loose, next := separator(b, i, wide)
		if next < 0 {
			return i
		}
		c.sep[c.n-1], c.loose[c.n-1] = sep, loose
		i = next
	}
}

// separator reads what stands between two groups at i: at most three signs, one of them not a space. next is -1 when no
// digit follows or it is no separator.
func separator(b []byte, i int, wide bool) (sep byte, loose bool, next int) {
	spaces := 0
	for n := 0; i < len(b) && n < 4; i, n = i+1, n+1 {
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			if sep == 0 && spaces == 0 {
				return 0, false, -1
			}
			if sep == 0 {
				sep = ' '
			} else if sep == 1 {
				sep = 0
			}
			return sep, spaces > 0 || sep == ' ', i
		case c == ' ' || c == '\t':
			spaces++
		case c == '-' || c == '.' || c == '_' || c == '+' || c == '/' || wide && (c == ',' || c == ':' || c == '|'):
			if sep != 0 {
				return 0, false, -1
			}
			sep = c
		case c == 0:
			if sep != 0 || spaces > 0 {
				return 0, false, -1
			}
			sep = 1
		default:
			return 0, false, -1
		}
	}
	return 0, false, -1
}

// judge looks for card numbers in one chain.
func (e *Editor) judge(t *reading, c *chain, m meaning, total int) {
	left := leftEdge(t.b, c.from[0])
	right := rightEdge(t.b, c.to[c.n-1])
	if left == edgeCard {
		m = meansCard
	}
	// Where a long list was cut into chains there is no edge.
	if c.goesOn && left == edgeJoined && c.to[0]-c.from[0] >= minDigits {
		left = edgeFree
	}
	if c.full && right == edgeJoined && c.to[c.n-1]-c.from[c.n-1] >= minDigits {
		right = edgeFree
	}
	if ibanBefore(t.b, c.from[0], c.to[c.n-1]) && m != meansCard {
		return
	}
	if c.n == 2 && c.sep[0] == '.' && !c.loose[0] && e.float(t, c, m, left) {
		return
	}
	if total <= 19 && !c.full && left != edgeJoined && right != edgeJoined && c.uniform(0, c.n, true) {
		if e.card(t, c, 0, c.n, m) {
			return
		}
	}
	if c.n == 1 {
		return
	}
	// Parts of a chain: only where groups may be apart.
	for a := 0; a < c.n; a++ {
		if a == 0 && left == edgeJoined || a > 0 && !c.apart(a-1, m) {
			continue
		}
		sum, best := 0, 0
		for z := a; z < c.n; z++ {
			sum += c.to[z] - c.from[z]
			if sum > 19 {
				break
			}
			if sum < minDigits || z == c.n-1 && right == edgeJoined || z < c.n-1 && !c.apart(z, m) || a == 0 && z == c.n-1 || !c.uniform(a, z+1, false) {
				continue
			}
			if c.full && m != meansCard && z > a {
				continue
			}
			if e.fits(t, c, a, z+1, m) && (best == 0 || usual(sum)) {
				best = z + 1
			}
		}
		if best > 0 {
			e.note(t, c, a, best)
			a = best - 1
		}
	}
}

// usual are the lengths that most cards have.
func usual(n int) bool { return n == 16 || n == 15 || n == 14 }

// apart says that the number before separator i may end there.
func (c *chain) apart(i int, m meaning) bool {
	switch c.sep[i] {
	case ' ', '+', '/', 0:
		return true
	}
	if c.loose[i] || m == meansCard {
		return true
	}
	size := func(g int) int { return c.to[g] - c.from[g] }
	if size(i) < minDigits {
		return false
	}
	// two whole numbers, or a number with the month and the check digits that are printed beside it
	return size(i+1) >= minDigits || i+2 < c.n && size(i+1) == 4 && (size(i+2) == 3 || size(i+2) == 4)
}

// uniform says that groups [a, z) look like one number: one separator and a shape that people write. alone is set when
// nothing else stands beside them; then the shape 4-4-4-4 may have mixed separators.
func (c *chain) uniform(a, z int, alone bool) bool {
	if z-a == 1 {
		return true
	}
	same := true
	for i := a + 1; i < z-1; i++ {
		if c.sep[i] != c.sep[a] || c.loose[i] != c.loose[a] {
			same = false
		}
	}
	ones := true
	for i := a; i < z; i++ {
		if c.to[i]-c.from[i] != 1 {
			ones = false
		}
	}
	if ones {
		return same && alone
	}
	if c.sep[a] == '/' && !(alone && (z-a == 4 || z-a == 3)) { // a path, a date, a list
		return false
	}
	if c.sep[a] == 0 { // NUL: only between single digits, as UTF-16 has it
		return false
	}
	return c.shape(a, z) && (same || alone)
}

// shape says that the group sizes are ones that cards are printed or typed in.
func (c *chain) shape(a, z int) bool {
	size := func(i int) int { return c.to[i] - c.from[i] }
	n := z - a
	switch n {
	case 2: // 8-8, 6-10, 4-12, 12-4, ...
		return size(a) >= 4 && size(a+1) >= 4
	case 3: // 4-6-5, 4-6-4, 5-5-6, 4-4-4
		return size(a) >= 4 && size(a+1) >= 4 && size(a+2) >= 3
	case 8: // in pairs
		for i := a; i < z; i++ {
			if size(i) != 2 {
				return false
			}
		}
		return true
	}
	if n > 6 {
		return false
	}
	for i := a; i < z-1; i++ { // 4-4-4-4, 4-4-4-4-3, 4-4-4-1, 4-3-3-3, 3-3-3-3-4
		if size(i) < 3 || size(i) > 6 {
			return false
		}
	}
	return size(a) == 4 || size(a) == 6 || size(a) == 3 && size(z-1) >= 3
}

// card notes groups [a, z) if they are one.
func (e *Editor) card(t *reading, c *chain, a, z int, m meaning) bool {
	if !e.fits(t, c, a, z, m) {
		return false
	}
	e.note(t, c, a, z)
	return true
}

func (e *Editor) note(t *reading, c *chain, a, z int) {
	n := 0
	for i := a; i < z; i++ {
		n += c.to[i] - c.from[i]
	}
	e.add(t, c.from[a], c.to[z-1], hit{kind: kindPAN, digits: uint8(n)})
	e.trailing(t, c.to[z-1])
}

// fits decides on the digits of groups [a, z).
func (e *Editor) fits(t *reading, c *chain, a, z int, m meaning) bool {
	var buf [19]byte
	d := buf[:0]
	for i := a; i < z; i++ {
		d = append(d, t.b[c.from[i]:c.to[i]]...)
	}
	grouped := z-a > 1
	if m == means {
		if !luhn(d) {
			return false
		}
		if m = contextBefore(t.b, c.from[a]); m == means && z-a == 1 && unitAfter(t.b, c.to[a]) {
			m = meansTime
		}
	}
	return e.r.isCard(d, m, grouped)
}

// isCard decides on 12 to 19 digits with nothing else around them.
func (r *Redactor) isCard(d []byte, m meaning, grouped bool) bool {
	if d[0] == '0' && m == meansCard { // padded to a fixed width
		for len(d) > minDigits && d[0] == '0' {
			d = d[1:]
		}
	}
	if len(d) < minDigits || len(d) > 19 || !luhn(d) || sameDigit(d) {
		return false
	}
	rank := issuerOf(r.issuers, d)
	switch m {
	case meansCard:
		return rank != notIssued
	case meansTime, meansReference:
		return publishedTest(d) || grouped && rank == issued && len(d) >= 14
	case meansPhone:
		return publishedTest(d) || rank == issued && len(d) >= 16
	}
	if rank != issued {
		return false
	}
	if publishedTest(d) {
		return true
	}
	if grouped {
		return true
	}
	return !looksLikeTime(d) && !(len(d) == 13 && d[0] == '4' && d[1] <= '4' && gtin(d)) // 400 to 440: articles of Germany
}

// looksLikeTime knows the numbers that clocks make in issuer ranges: .NET ticks (18 digits, years 1990 to 2090) and
// day-month-year-hour-minute-second.
func looksLikeTime(d []byte) bool {
	switch len(d) {
	case 18:
		return d[0] == '6' && (d[1] == '2' && d[2] >= '8' || d[1] >= '3' && d[1] <= '5')
	case 14, 17:
		two := func(i int) int { return int(d[i]-'0')*10 + int(d[i+1]-'0') }
		day, month, century, year := two(0), two(2), two(4), two(6)
		return day >= 1 && day <= 31 && month >= 1 && month <= 12 && (century == 19 && year >= 90 || century == 20 && year < 50) && two(8) < 24 && two(10) < 60 && two(12) < 60
	}
	return false
}

// float reads what a double prints: "4111111111111111.0", "4.111111111111111E15". It reports whether the chain was one,
// card or not.
func (e *Editor) float(t *reading, c *chain, m meaning, left edge) bool {
	b := t.b
	whole, part := b[c.from[0]:c.to[0]], b[c.from[1]:c.to[1]]
	end := c.to[1]
	exp, signs := 0, 0
	if end < len(b) && (b[end] == 'e' || b[end] == 'E') {
		i := end + 1
		if i < len(b) && b[i] == '+' {
			i++
		}
		for signs = 0; i < len(b) && b[i] >= '0' && b[i] <= '9' && signs < 3; i, signs = i+1, signs+1 {
			exp = exp*10 + int(b[i]-'0')
		}
		if signs == 0 {
			return false
		}
		end = i
	}
	var buf [24]byte
	d := buf[:0]
	if len(whole)+len(part) > len(buf) {
		return false
	}
	d = append(append(d, whole...), part...)
	point := len(whole) + exp
	for len(d) > point && d[len(d)-1] == '0' {
		d = d[:len(d)-1]
	}
	if len(d) > point || point > 19 {
		return false
	}
	for len(d) < point {
		d = append(d, '0')
	}
	if len(d) < minDigits || left == edgeJoined || rightEdge(b, end) == edgeJoined {
		return false
	}
	if signs == 0 && len(part) > 3 {
		return false
	}
	if m == means {
		m = contextBefore(b, c.from[0])
	}
	if !e.r.isCard(d, m, false) {
		return false
	}
	e.add(t, c.from[0], end, hit{kind: kindPAN, digits: uint8(len(d))})
	return true
}
