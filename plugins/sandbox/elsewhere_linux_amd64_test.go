package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The page by which a program reads the clock is struck out of what it is told at its start, and everything else is as it was: shown with
// this program itself or, if it is linked, with its loader.
func TestAProgramIsNotToldWhereTheClockIs(t *testing.T) {
	if os.Getenv("TELL_WHAT_IT_WAS_TOLD") != "" {
		told, err := unix.Auxv()
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range told {
			if pair[0] == 33 {
				t.Error("it was told")
			}
		}
		if len(told) < 10 || os.Getenv("TELL_WHAT_IT_WAS_TOLD") != "all of it" || time.Now().Year() < 2000 {
			t.Error("it was told other things too", told)
		}
		fmt.Println("TOLD")
		return
	}
	const run = "-test.run=^TestAProgramIsNotToldWhereTheClockIs$"
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	loader, err := interpreter(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	runs := func(change func(*os.File) (*os.File, error)) ([]byte, error) {
		var files []*os.File // the program, and its loader
		for _, text := range [][]byte{text, nil}[:1+len(loader)] {
			if text == nil {
				if text, err = os.ReadFile(loader[0]); err != nil {
					t.Fatal(err)
				}
			} else if len(loader) > 0 { // names the one that it is given
				name := make([]byte, len(loader[0]))
				copy(name, "/proc/self/fd/4")
				text = bytes.Replace(text, append([]byte(loader[0]), 0), append(name, 0), 1)
			}
			f, err := Seal(text)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			files = append(files, f)
		}
		if files[len(loader)], err = change(files[len(loader)]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { files[len(loader)].Close() })
		cmd := exec.Command("/proc/self/fd/3", run)
		cmd.ExtraFiles = files
		cmd.Env = []string{"TELL_WHAT_IT_WAS_TOLD=all of it"}
		return cmd.CombinedOutput()
	}
	if out, err := runs(withoutClock); err != nil || !strings.Contains(string(out), "TOLD") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := runs(func(f *os.File) (*os.File, error) { return f, nil }); err == nil || !strings.Contains(string(out), "it was told\n") {
		t.Fatalf("unchanged it was not told: %v\n%s", err, out)
	}
}

func TestWhatIsNoProgramHasNoClockToHide(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "a script": "#!/bin/sh\n", "a head alone": "\x7fELF\x02\x01\x01", "an empty head": "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 57)} {
		if edits, err := clockless(strings.NewReader(text), int64(len(text))); err == nil {
			t.Errorf("%s: %v", name, edits)
		}
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
