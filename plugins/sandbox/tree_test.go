package sandbox

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
	"testing"
)

// entry is one entry of an archive, by hand: the library writes none with holes.
func entry(name string, kind byte, text string, mode int) []byte {
	h := make([]byte, 512)
	copy(h[0:], name)
	copy(h[100:], fmt.Sprintf("%07o\x00", mode))
	copy(h[124:], fmt.Sprintf("%011o\x00", len(text)))
	copy(h[136:], fmt.Sprintf("%011o\x00", 0))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	copy(h[148:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	body := make([]byte, (len(text)+511)/512*512)
	copy(body, text)
	return append(h, body...)
}

// attribute is one record of an extended header, which begins with its own length.
func attribute(key, value string) string {
	rest := " " + key + "=" + value + "\n"
	for n := len(rest); ; n++ {
		if s := fmt.Sprint(n) + rest; len(s) == n {
			return s
		}
	}
}

func TestAFileWithHolesIsNotUnpacked(t *testing.T) {
	program := entry("bin/x", '0', elf.ELFMAG+"...", 0o755)
	end := make([]byte, 1024)
	if _, err := ReadTree(bytes.NewReader(append(bytes.Clone(program), end...)), "/bin/x"); err != nil {
		t.Fatal(err)
	}
	about := attribute("GNU.sparse.size", "104857600") + attribute("GNU.sparse.numblocks", "1") + attribute("GNU.sparse.map", "104857599,1")
	holes := append(entry("PaxHeaders/hole", 'x', about, 0o644), entry("hole", '0', "x", 0o644)...)
	all := append(append(bytes.Clone(program), holes...), end...)
	if _, err := ReadTree(bytes.NewReader(all), "/bin/x"); err == nil || !strings.Contains(err.Error(), "has holes") {
		t.Errorf("%v", err)
	}
}
