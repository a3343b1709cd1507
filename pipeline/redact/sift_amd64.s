#include "textflag.h"

// Bits of a byte by its low and by its high half, of which it has those that both have: 1 control, 2 space, 4 per cent and
// ampersand, 8 colon to greater-than, 16 backslash, 32 J, 64 digit, 128 plus.
DATA lowSign<>+0(SB)/8, $0x4145454141414143
DATA lowSign<>+8(SB)/8, $0x0109091989294141
GLOBL lowSign<>(SB), RODATA|NOPTR, $16
DATA highSign<>+0(SB)/8, $0x0000102048860101
DATA highSign<>+8(SB)/8, $0x0000000000000000
GLOBL highSign<>(SB), RODATA|NOPTR, $16

// The same of small letters, a bit for each scheme: which have that letter last, last but one, last but two.
DATA lowLast<>+0(SB)/8, $0x0000100402010000
DATA lowLast<>+8(SB)/8, $0x0000200040000800
GLOBL lowLast<>(SB), RODATA|NOPTR, $16
DATA highLast<>+0(SB)/8, $0x0d72000000000000
DATA highLast<>+8(SB)/8, $0x0000000000000000
GLOBL highLast<>(SB), RODATA|NOPTR, $16
DATA lowBefore<>+0(SB)/8, $0x4000091004000000
DATA lowBefore<>+8(SB)/8, $0x0000002000000200
GLOBL lowBefore<>(SB), RODATA|NOPTR, $16
DATA highBefore<>+0(SB)/8, $0x542b000000000000
DATA highBefore<>+8(SB)/8, $0x0000000000000000
GLOBL highBefore<>(SB), RODATA|NOPTR, $16
DATA lowThird<>+0(SB)/8, $0x0000042002015000
DATA lowThird<>+8(SB)/8, $0x0000000008000000
GLOBL lowThird<>(SB), RODATA|NOPTR, $16
DATA highThird<>+0(SB)/8, $0x235c000000000000
DATA highThird<>+8(SB)/8, $0x0000000000000000
GLOBL highThird<>(SB), RODATA|NOPTR, $16

// a byte in all 32 places
DATA half<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+8(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+16(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA half<>+24(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL half<>(SB), RODATA|NOPTR, $32
DATA small<>+0(SB)/8, $0x2020202020202020
DATA small<>+8(SB)/8, $0x2020202020202020
DATA small<>+16(SB)/8, $0x2020202020202020
DATA small<>+24(SB)/8, $0x2020202020202020
GLOBL small<>(SB), RODATA|NOPTR, $32
DATA marks<>+0(SB)/8, $0x3d3d3d3d3d3d3d3d
DATA marks<>+8(SB)/8, $0x3d3d3d3d3d3d3d3d
DATA marks<>+16(SB)/8, $0x3d3d3d3d3d3d3d3d
DATA marks<>+24(SB)/8, $0x3d3d3d3d3d3d3d3d
GLOBL marks<>(SB), RODATA|NOPTR, $32
DATA carry<>+0(SB)/8, $0x7f7f7f7f7f7f7f7f
DATA carry<>+8(SB)/8, $0x7f7f7f7f7f7f7f7f
DATA carry<>+16(SB)/8, $0x7f7f7f7f7f7f7f7f
DATA carry<>+24(SB)/8, $0x7f7f7f7f7f7f7f7f
GLOBL carry<>(SB), RODATA|NOPTR, $32

// TAIL takes the letters at some places before those of Y2 (Y3 has the lane before), and leaves the schemes that have them there.
#define TAIL(shift, low, high) \
	VPALIGNR shift, Y3, Y2, Y0 \
	VPAND Y0, Y12, Y1 \
	VPSRLW $4, Y0, Y0 \
	VPAND Y0, Y12, Y0 \
	VPSHUFB Y1, low, Y1 \
	VPSHUFB Y0, high, Y0 \
	VPAND Y0, Y1, Y0

// CHUNK sifts the 32 bytes in Y0; Y14 has the letters of the 32 before. The bits of the lane that are moved to the top of each byte
// are taken out as a mask; adding 7f moves any bit there.
#define CHUNK(at) \
	VPMOVMSKB Y0, R8 \
	VPAND Y0, Y12, Y1 \
	VPSRLW $4, Y0, Y2 \
	VPAND Y2, Y12, Y2 \
	VPSHUFB Y1, Y4, Y1 \
	VPSHUFB Y2, Y5, Y2 \
	VPAND Y1, Y2, Y1 \
	VPMOVMSKB Y1, R9 \
	VPSLLW $1, Y1, Y3 \
	VPMOVMSKB Y3, R10 \
	VPSLLW $6, Y1, Y3 \
	VPMOVMSKB Y3, R11 \
	VPAND marks<>(SB), Y1, Y1 \
	VPADDB carry<>(SB), Y1, Y1 \
	VPMOVMSKB Y1, R12 \
	ORL R12, R8 \
	ORL R11, R9 \
	VPOR small<>(SB), Y0, Y2 \
	VPERM2I128 $0x21, Y2, Y14, Y3 \
	VMOVDQA Y2, Y14 \
	TAIL($15, Y6, Y7) \
	VMOVDQA Y0, Y13 \
	TAIL($14, Y8, Y9) \
	VPAND Y0, Y13, Y13 \
	TAIL($13, Y10, Y11) \
	VPAND Y0, Y13, Y0 \
	VPADDB carry<>(SB), Y0, Y0 \
	VPMOVMSKB Y0, R12 \
	ANDL R9, R12 \
	ORL R12, R8 \
	MOVL R8, (AX)(at*4) \
	MOVL R10, (BX)(at*4) \
	MOVL R11, (CX)(at*4)

// func siftChunks(data *byte, chunks int, rest *byte, marks, digits, spaces *uint64)
TEXT ·siftChunks(SB), NOSPLIT, $0-48
	MOVQ data+0(FP), SI
	MOVQ chunks+8(FP), DI
	MOVQ rest+16(FP), DX
	MOVQ marks+24(FP), AX
	MOVQ digits+32(FP), BX
	MOVQ spaces+40(FP), CX
	VBROADCASTI128 lowSign<>(SB), Y4
	VBROADCASTI128 highSign<>(SB), Y5
	VBROADCASTI128 lowLast<>(SB), Y6
	VBROADCASTI128 highLast<>(SB), Y7
	VBROADCASTI128 lowBefore<>(SB), Y8
	VBROADCASTI128 highBefore<>(SB), Y9
	VBROADCASTI128 lowThird<>(SB), Y10
	VBROADCASTI128 highThird<>(SB), Y11
	VMOVDQU half<>(SB), Y12
	VPXOR Y14, Y14, Y14
	XORQ R13, R13

loop:
	CMPQ R13, DI
	JGE last
	VMOVDQU (SI), Y0
	CHUNK(R13)
	ADDQ $32, SI
	INCQ R13
	JMP loop

last:
	TESTQ DX, DX
	JZ done
	VMOVDQU (DX), Y0
	CHUNK(R13)

done:
	VZEROUPPER
	RET
