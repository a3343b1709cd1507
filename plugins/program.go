package plugins

import (
	"bytes"
	"debug/elf"
	"runtime"
)

// checkProgram says why the file cannot run in an empty root folder: a sentence, or nothing.
func checkProgram(b []byte) string {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return "the program is not an ELF file"
	}
	defer f.Close()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	switch {
	case f.Machine != machine:
		return "the program is for another machine: " + f.Machine.String()
	case f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN:
		return "the file is not a program"
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "the program is linked dynamically, and its root folder in the sandbox is empty"
		}
	}
	return ""
}
