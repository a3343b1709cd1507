package plugins

import (
	"bytes"
	"debug/elf"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// checkProgram says why a file cannot run in an empty root folder and what to do about it: nothing if it can.
func checkProgram(dir, file string, b []byte) (what, remedy string) {
	if line, ok := bytes.CutPrefix(b, []byte("#!")); ok {
		line, _, _ = bytes.Cut(line[:min(len(line), 256)], []byte("\n"))
		words := strings.Fields(string(line))
		if len(words) > 1 && path.Base(words[0]) == "env" {
			words = words[1:]
		}
		interpreter := "bash"
		if len(words) > 0 && nameForm.MatchString(strings.ReplaceAll(path.Base(words[0]), ".", "-")) {
			interpreter = path.Base(words[0])
		}
		base := filepath.Base(file)
		return "it is a script, and its root folder in the sandbox is empty: there is no interpreter",
			"pack its interpreter with it: write path: root.tar and run: [/bin/" + interpreter + ", /app/" + base + "] in artifacts, and pack: {interpreter: " + interpreter +
				", files: [" + base + "]}; then reprieve plugin pack " + dir
	}
	const static = "build a static program: CGO_ENABLED=0 go build; -C target-feature=+crt-static in Rust; -static in C"
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return "the program is not an ELF file", static
	}
	defer f.Close()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	switch {
	case f.Machine != machine:
		return "the program is for another machine: " + f.Machine.String(), "build it for " + Platform()
	case f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN:
		return "the file is not a program", static
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "the program is linked dynamically, and its root folder in the sandbox is empty: there are no libraries", static
		}
	}
	return "", ""
}
