package sandbox

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A program reads the clock without a call, by a page that the kernel maps and whose place it tells on the first stack (AT_SYSINFO_EHDR of
// linux/auxvec.h). To be told another time it must not find that page: its file gets a new entry that strikes the place out and goes on
// at the old one. The kernel's word for it is struck, not the page: who searches memory for it finds it.

// strike is that entry. At its start the stack holds the number of arguments, the arguments, 0, the environment, 0, and pairs of kind and
// value. All registers but the stack pointer are 0 there, and are left so; rdx may hold a function, and is not touched.
var strike = []byte{
	0x48, 0x8b, 0x0c, 0x24, //             mov rcx, [rsp]
	0x48, 0x8d, 0x44, 0xcc, 0x10, //       lea rax, [rsp+rcx*8+16]
	0x48, 0x8b, 0x08, //             env:  mov rcx, [rax]
	0x48, 0x83, 0xc0, 0x08, //             add rax, 8
	0x48, 0x85, 0xc9, //                   test rcx, rcx
	0x75, 0xf4, //                         jnz env
	0x48, 0x8b, 0x08, //             pair: mov rcx, [rax]
	0x48, 0x85, 0xc9, //                   test rcx, rcx
	0x74, 0x13, //                         jz end
	0x48, 0x83, 0xf9, 0x21, //             cmp rcx, 33 (AT_SYSINFO_EHDR)
	0x74, 0x06, //                         je found
	0x48, 0x83, 0xc0, 0x10, //             add rax, 16
	0xeb, 0xec, //                         jmp pair
	0x48, 0xc7, 0x00, 1, 0, 0, 0, // found: mov qword [rax], 1 (AT_IGNORE)
	0x31, 0xc0, //                   end:  xor eax, eax
	0x31, 0xc9, //                         xor ecx, ecx
	0xe9, //                               jmp, and 4 bytes: how far
}

// edit is bytes that replace those of a file, or follow it.
type edit struct {
	at   int64
	text []byte
}

const (
	page       = 4096
	headerSize = 64 // of an ELF file of 64 bits; of one entry of its table of segments: 56
	entrySize  = 56
)

// clockless are the edits that give an ELF program, static or a loader, the entry above: a table of segments with one more, which holds
// the table and the entry, behind everything that the file has in memory. Offset and address differ there by as much as in the first
// segment, because older kernels work out the table's address from that.
func clockless(program io.ReaderAt, size int64) ([]edit, error) {
	f, err := elf.NewFile(program)
	if err != nil {
		return nil, err
	}
	head := make([]byte, headerSize)
	if _, err := program.ReadAt(head, 0); err != nil {
		return nil, err
	}
	first, last, end := -1, -1, uint64(0)
	for i, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if first < 0 {
			first = i
		}
		last, end = i, max(end, p.Vaddr+p.Memsz)
	}
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 || first < 0 || f.Progs[first].Vaddr < f.Progs[first].Off || end > math.MaxInt64/2 {
		return nil, errors.New("it is no program of x86-64")
	}
	base := f.Progs[first].Vaddr - f.Progs[first].Off
	at := (max(uint64(size), end-base) + page - 1) &^ (page - 1)
	table := entrySize * (len(f.Progs) + 1)
	entry := base + at + uint64(table)
	long := uint64(table + len(strike) + 4)
	far := int64(f.Entry) - int64(base+at+long)
	if far != int64(int32(far)) {
		return nil, errors.New("its segments are too far apart")
	}
	var text bytes.Buffer
	put := func(p elf.Prog64) { _ = binary.Write(&text, binary.LittleEndian, p) } // a buffer takes everything
	for i, p := range f.Progs {
		q := elf.Prog64{Type: uint32(p.Type), Flags: uint32(p.Flags), Off: p.Off, Vaddr: p.Vaddr, Paddr: p.Paddr, Filesz: p.Filesz, Memsz: p.Memsz, Align: p.Align}
		if p.Type == elf.PT_PHDR {
			q.Off, q.Vaddr, q.Paddr, q.Filesz, q.Memsz = at, base+at, base+at, uint64(table), uint64(table)
		}
		put(q)
		if i == last {
			put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: at, Vaddr: base + at, Paddr: base + at, Filesz: long, Memsz: long, Align: page})
		}
	}
	text.Write(strike)
	_ = binary.Write(&text, binary.LittleEndian, int32(far))
	binary.LittleEndian.PutUint64(head[24:], entry)                     // e_entry
	binary.LittleEndian.PutUint64(head[32:], at)                        // e_phoff
	binary.LittleEndian.PutUint16(head[56:], uint16(len(f.Progs)+1))    // e_phnum
	if got := binary.LittleEndian.Uint16(head[54:]); got != entrySize { // e_phentsize
		return nil, fmt.Errorf("an entry of its table of segments has %d bytes", got)
	}
	return []edit{{0, head}, {int64(at), text.Bytes()}}, nil
}
