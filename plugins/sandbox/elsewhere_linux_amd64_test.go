package sandbox

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAnEntryOfTheFirstStackIsFound(t *testing.T) {
	words := func(vs ...uint64) (b []byte) {
		for _, v := range vs {
			b = binary.NativeEndian.AppendUint64(b, v)
		}
		return b
	}
	for name, c := range map[string]struct {
		stack []byte
		at    int
		fails bool
	}{
		"two arguments and an environment": {words(2, 11, 12, 0, 21, 22, 23, 0, 3, 9, auxCalls, 0xabc, 0, 0), 8 * 10, false},
		"nothing but the entry":            {words(0, 0, 0, auxCalls, 0xabc, 0, 0), 8 * 3, false},
		"there is none":                    {words(1, 11, 0, 0, 3, 9, 0, 0), 0, false},
		"a value that looks like it":       {words(1, 11, 0, 0, 3, auxCalls, 0, 0), 0, false},
		"cut":                              {words(1, 11, 0, 0, 3), 0, true},
		"no end of the environment":        {words(1, 11, 0, 5, 6, 7), 0, true},
		"no stack":                         {words(1 << 60), 0, true},
		"nothing":                          {nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := auxEntry(c.stack, auxCalls)
			if at != c.at || (err != nil) != c.fails {
				t.Errorf("%d %v", at, err)
			}
		})
	}
}

func TestElsewhereAnotherTimeAndMachineAreTold(t *testing.T) {
	now := time.Unix(1_800_000_000, 123_456_789)
	shifted := &Elsewhere{Shift: -time.Hour}
	for name, c := range map[string]struct {
		where *Elsewhere
		q     question
		at    uint64
		text  []uint64
		val   int64
	}{
		"clock":            {shifted, question{nr: unix.SYS_CLOCK_GETTIME, args: [6]uint64{0, 77}}, 77, []uint64{1_799_996_400, 123_456_789}, 0},
		"time of day":      {shifted, question{nr: unix.SYS_GETTIMEOFDAY, args: [6]uint64{77}}, 77, []uint64{1_799_996_400, 123_456}, 0},
		"seconds":          {shifted, question{nr: unix.SYS_TIME, args: [6]uint64{0}}, 0, []uint64{1_799_996_400}, 1_799_996_400},
		"here and now too": {nil, question{nr: unix.SYS_TIME, args: [6]uint64{5}}, 5, []uint64{1_800_000_000}, 1_800_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			at, text, val := c.where.told(&c.q, now)
			if at != c.at || val != c.val || len(text) != 8*len(c.text) {
				t.Fatal(at, text, val)
			}
			for i, want := range c.text {
				if got := binary.NativeEndian.Uint64(text[8*i:]); got != want {
					t.Errorf("%d, want %d", got, want)
				}
			}
		})
	}
	for where, host := range map[*Elsewhere]string{nil: hostName, shifted: "elsewhere"} {
		at, text, _ := where.told(&question{nr: unix.SYS_UNAME, args: [6]uint64{9}}, now)
		if at != 9 || len(text) != 6*65 || strings.TrimRight(string(text[65:130]), "\x00") != host || !strings.HasPrefix(string(text), "Linux\x00") {
			t.Errorf("%d %q", at, text)
		}
	}
}
