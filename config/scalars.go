package config

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Duration is a span of time written with its unit: "100ms", "1.5s", "1h30m", "30d" (a day is 24 h). It is never negative.
type Duration time.Duration

// Std is the standard library's form.
func (d Duration) Std() time.Duration { return time.Duration(d) }

var durationUnits = [...]struct {
	name string
	size time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1}}

// String is the shortest whole form that ParseDuration reads: "100ms", "1h30m", "30d", "0s".
func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	if d < 0 {
		return time.Duration(d).String()
	}
	var b strings.Builder
	rest := time.Duration(d)
	for _, u := range durationUnits {
		if n := rest / u.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			rest %= u.size
		}
	}
	return b.String()
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what people write. Codes: ERR_CONFIG_VALUE.
func (d *Duration) UnmarshalText(text []byte) error {
	n, err := ParseDuration(string(text))
	*d = Duration(n)
	return err
}

// UnmarshalConfig reads a scalar. Codes: ERR_CONFIG_TYPE, ERR_CONFIG_VALUE.
func (d *Duration) UnmarshalConfig(n Node) Problems {
	return readScalar(n, (*time.Duration)(d), "a duration is wanted here", "write 100ms, 30s or 30d", parseDuration, suggestDuration)
}

func (d Duration) configSchema() map[string]any {
	return map[string]any{"type": "string", "pattern": `^(0|([0-9]+(\.[0-9]+)?(d|h|m|s|ms|us|ns))+|[^$]*\$\{.*)$`, "examples": []any{"100ms", "30d"}}
}

// ParseDuration reads a duration. Codes: ERR_CONFIG_VALUE.
func ParseDuration(s string) (time.Duration, error) {
	d, fail := parseDuration(s)
	if fail != "" {
		return 0, Problems{{Code: CodeValue, Text: fail, Suggestion: "write 100ms, 30s or 30d"}}
	}
	return d, nil
}

func parseDuration(s string) (d time.Duration, fail string) {
	if s == "0" {
		return 0, ""
	}
	if s == "" {
		return 0, "a duration is wanted here, and nothing is written"
	}
	if strings.HasPrefix(s, "-") {
		return 0, "a duration cannot be negative"
	}
	var total uint64
	for s != "" {
		whole, rest, ok := digits(s)
		if !ok {
			return 0, "it is not a duration"
		}
		fraction, scale := uint64(0), uint64(1)
		if strings.HasPrefix(rest, ".") {
			end := 1
			for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
				end++
			}
			if end == 1 || end > 10 {
				return 0, "it is not a duration"
			}
			for _, c := range []byte(rest[1:end]) {
				fraction, scale = fraction*10+uint64(c-'0'), scale*10
			}
			rest = rest[end:]
		}
		end := 0
		for end < len(rest) && (rest[end] < '0' || rest[end] > '9') {
			end++
		}
		unit := uint64(0)
		for _, u := range durationUnits {
			if u.name == rest[:end] {
				unit = uint64(u.size)
			}
		}
		switch {
		case rest[:end] == "":
			return 0, "a duration needs a unit"
		case unit == 0:
			return 0, "the unit of the duration is unknown"
		}
		hi, part := bits.Mul64(whole, unit)
		fhi, flo := bits.Mul64(fraction, unit)
		if hi != 0 || part > math.MaxInt64 || fhi >= scale {
			return 0, "the duration is too long"
		}
		frac, _ := bits.Div64(fhi, flo, scale)
		total += part
		if total > math.MaxInt64 || total+frac > math.MaxInt64 {
			return 0, "the duration is too long"
		}
		total += frac
		s = rest[end:]
	}
	return time.Duration(total), ""
}

// digits reads leading decimal digits; ok is false without any or beyond 64 bits.
func digits(s string) (n uint64, rest string, ok bool) {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.ParseUint(s[:end], 10, 64)
	return n, s[end:], err == nil
}

// suggestDuration says how a duration is written, with the number that stands there if one does.
// readScalar reads one scalar with a unit into *into, which stays as it is when there is a problem.
func readScalar[T any](n Node, into *T, wanted, example string, parse func(string) (T, string), suggest func(*value) string) Problems {
	text, ok := n.Text()
	if !ok {
		return Problems{n.Problem("", CodeType, wanted, example)}
	}
	v, fail := parse(text)
	if fail != "" {
		return Problems{n.Problem("", CodeValue, fail, suggest(n.value))}
	}
	*into = v
	return nil
}

// bareNumber tells whether somebody wrote a number and forgot its unit.
func bareNumber(v *value) bool {
	return v != nil && !v.variable && integer.MatchString(v.text) && len(v.text) < 16 && v.text[0] != '-'
}

func suggestDuration(v *value) string {
	if bareNumber(v) {
		return fmt.Sprintf("write %sms, %ss, %sm, %sh or %sd", v.text, v.text, v.text, v.text, v.text)
	}
	return "write 100ms, 30s or 30d; the units are ms, s, m, h, d"
}

// Size is a number of bytes written with its unit: "512B", "64KiB", "1MiB", "1MB" (decimal).
type Size int64

var sizeUnits = [...]struct {
	name string
	size uint64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1}}

// Bytes is the plain number.
func (s Size) Bytes() int64 { return int64(s) }

// String is the largest whole binary unit: "1MiB", "1500B".
func (s Size) String() string {
	if s <= 0 {
		return strconv.FormatInt(int64(s), 10) + "B"
	}
	for _, u := range sizeUnits[:4] {
		if uint64(s)%u.size == 0 {
			return strconv.FormatUint(uint64(s)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what people write. Codes: ERR_CONFIG_VALUE.
func (s *Size) UnmarshalText(text []byte) error {
	n, fail := parseSize(string(text))
	if fail != "" {
		return Problems{{Code: CodeValue, Text: fail, Suggestion: "write 1MiB or 512B"}}
	}
	*s = n
	return nil
}

// UnmarshalConfig reads a scalar. Codes: ERR_CONFIG_TYPE, ERR_CONFIG_VALUE.
func (s *Size) UnmarshalConfig(n Node) Problems {
	return readScalar(n, s, "a size is wanted here", "write 1MiB or 512B", parseSize, func(v *value) string {
		if bareNumber(v) {
			return fmt.Sprintf("write %sB, %sKiB or %sMiB", v.text, v.text, v.text)
		}
		return "write 1MiB or 512B; the units are B, KiB, MiB, GiB, KB, MB, GB"
	})
}

func (s Size) configSchema() map[string]any {
	return map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?([KMGT]i?B|kB|B)|[^$]*\$\{.*)$`, "examples": []any{"1MiB"}}
}

func parseSize(s string) (Size, string) {
	if strings.HasPrefix(s, "-") {
		return 0, "a size cannot be negative"
	}
	whole, rest, ok := digits(s)
	if !ok {
		return 0, "it is not a size"
	}
	tenths := uint64(0)
	if len(rest) > 2 && rest[0] == '.' && rest[1] >= '0' && rest[1] <= '9' { // one decimal: 1.5MiB
		tenths, rest = uint64(rest[1]-'0'), rest[2:]
	}
	if rest == "" {
		return 0, "a size needs a unit"
	}
	for _, u := range sizeUnits {
		if u.name != rest {
			continue
		}
		hi, n := bits.Mul64(whole, u.size)
		if hi != 0 || n > math.MaxInt64-u.size {
			return 0, "the size is too large"
		}
		if tenths*u.size%10 != 0 && u.size%2 == 1 {
			return 0, "it is not a whole number of bytes"
		}
		return Size(n + tenths*u.size/10), ""
	}
	return 0, "the unit of the size is unknown"
}

// Rate is a number of events in a span of time: "50/s", "600/m", "1/10s". Zero is no rate.
type Rate struct {
	Count int64
	Per   time.Duration
}

// PerSecond is the rate as a fraction.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds()
}

// IsZero tells whether no rate is set; "0/s" is one: nothing may pass.
func (r Rate) IsZero() bool { return r == Rate{} }

// Above tells whether r lets more through than o, exactly.
func (r Rate) Above(o Rate) bool {
	ah, al := bits.Mul64(uint64(r.Count), uint64(o.Per))
	bh, bl := bits.Mul64(uint64(o.Count), uint64(r.Per))
	return ah > bh || ah == bh && al > bl
}

// String is "50/s", "1/10s"; empty for no rate.
func (r Rate) String() string {
	if r.IsZero() {
		return ""
	}
	per := Duration(r.Per).String()
	if strings.HasPrefix(per, "1") && (len(per) == 2 || per == "1ms") {
		per = per[1:]
	}
	return strconv.FormatInt(r.Count, 10) + "/" + per
}

// MarshalText is String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what people write. Codes: ERR_CONFIG_VALUE.
func (r *Rate) UnmarshalText(text []byte) error {
	v, fail := parseRate(string(text))
	if fail != "" {
		return Problems{{Code: CodeValue, Text: fail, Suggestion: "write 50/s"}}
	}
	*r = v
	return nil
}

// UnmarshalConfig reads a scalar. Codes: ERR_CONFIG_TYPE, ERR_CONFIG_VALUE.
func (r *Rate) UnmarshalConfig(n Node) Problems {
	return readScalar(n, r, "a rate is wanted here", "write 50/s", parseRate, func(v *value) string {
		if bareNumber(v) {
			return "write " + v.text + "/s"
		}
		return "write 50/s or 600/m"
	})
}

func (r *Rate) configScalar() {}

func (r Rate) configSchema() map[string]any {
	return map[string]any{"type": "string", "pattern": `^([0-9]+/[0-9]*(d|h|m|s|ms)|[^$]*\$\{.*)$`, "examples": []any{"50/s"}}
}

func parseRate(s string) (Rate, string) {
	count, per, ok := strings.Cut(s, "/")
	if !ok {
		return Rate{}, "a rate needs its time"
	}
	n, rest, ok := digits(count)
	if !ok || rest != "" || n > math.MaxInt64 {
		return Rate{}, "it is not a rate"
	}
	if per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, fail := parseDuration(per)
	if fail != "" || d <= 0 {
		return Rate{}, "the time of the rate is not one"
	}
	return Rate{int64(n), d}, ""
}
