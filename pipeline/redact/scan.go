package redact

// kind is what a detector found.
type kind uint8

const (
	kindNone kind = iota
	kindPAN
	kindCVV
	kindAuth
	kindField   // named by path, name or tag
	kindPattern // the user's own
)

// hit is one span to be replaced, in bytes of the source. rule is the pattern or field that asked for it.
type hit struct {
	from, to int
	kind     kind
	rule     uint16
	digits   uint8 // of a card number
	literal  bool  // a JSON number: what stands there must be one too
	varint   bool  // a number in binary: a zero of the same length
}

// What one byte is to the cheap look.
const (
	isDigit   = 1 << 0
	isJoin    = 1 << 1 // may stand between the digits of one number
	isEscape  = 1 << 2 // may hide another sign
	isAssign  = 1 << 3 // stands between a name and a value
	isSpace   = 1 << 4
	isCapital = 1 << 5 // J: the third letter of every JSON web token
)

// classes is built once for a Redactor: what each byte is.
func classes() (t [256]uint8) {
	for c := '0'; c <= '9'; c++ {
		t[c] = isDigit
	}
	for _, c := range " \t-._+\x00,/:|\r\n" {
		t[c] |= isJoin
	}
	for _, c := range `\%&` {
		t[c] |= isEscape
	}
	for c := 0x80; c < 0x100; c++ {
		t[c] |= isEscape
	}
	for _, c := range ":=<>" {
		t[c] |= isAssign
	}
	for _, c := range " \t\n\r" {
		t[c] |= isSpace
	}
	t['J'] |= isCapital
	return t
}

// minDigits is the length of the shortest card number.
const minDigits = 12

// look is the cheap first pass over one text: which detectors must read it. Most texts end here.
func (r *Redactor) look(s []byte) (seen uint8, run bool) {
	n := 0
	for _, c := range s {
		k := r.class[c]
		seen |= k
		if k&isDigit != 0 {
			if n++; n >= minDigits {
				run = true
			}
		} else if k&(isJoin|isEscape) == 0 {
			n = 0
		}
	}
	return seen, run
}

// scan appends to e.hits what the detectors find in s. m is what the name beside s means. Hits are ordered and apart. It
// allocates nothing once e's scratch has grown.
func (e *Editor) scan(s []byte, m meaning) {
	if len(s) < 3 || m == meansKept {
		return
	}
	seen, run := e.r.look(s)
	if seen&isEscape == 0 {
		if !run && seen&(isAssign|isSpace|isCapital) == 0 && len(e.r.patterns) == 0 {
			return
		}
		e.read = reading{b: s, n: len(s)}
	} else {
		e.norm, e.pos = unescape(s, e.norm, e.pos)
		e.read = reading{b: e.norm, pos: e.pos, n: len(s), src: s}
		seen, run = e.r.look(e.norm)
	}
	from := len(e.hits)
	if run && e.r.pan {
		e.pans(&e.read, m)
	}
	if seen&(isAssign|isSpace) != 0 && (e.r.cvv || e.r.auth || e.r.named) {
		e.words(&e.read)
	}
	if seen&isCapital != 0 && e.r.auth {
		e.jwts(&e.read)
	}
	if len(e.r.patterns) > 0 {
		e.matchPatterns(s)
	}
	e.settle(from)
}

// add notes a hit over signs [from, to) of t.
func (e *Editor) add(t *reading, from, to int, h hit) {
	h.from, h.to = t.at(from), t.at(to)
	if h.to > h.from {
		e.hits = append(e.hits, h)
	}
}

// settle orders e.hits[from:] and joins what overlaps: the wider kind of the first wins.
func (e *Editor) settle(from int) {
	h := e.hits[from:]
	if len(h) < 2 {
		return
	}
	for i := 1; i < len(h); i++ {
		for j := i; j > 0 && (h[j].from < h[j-1].from || h[j].from == h[j-1].from && h[j].to > h[j-1].to); j-- {
			h[j], h[j-1] = h[j-1], h[j]
		}
	}
	k := 0
	for i := 1; i < len(h); i++ {
		if h[i].from < h[k].to {
			if h[i].to > h[k].to {
				h[k].to, h[k].kind, h[k].digits = h[i].to, h[i].kind, 0
			}
			continue
		}
		k++
		h[k] = h[i]
	}
	e.hits = e.hits[:from+k+1]
}
