#include "textflag.h"

// Bits of a byte by its low and by its high half, of which it has those that both have: 1 control, 2 space, 4 per cent and
// ampersand, 8 colon to greater-than, 16 backslash, 32 J, 64 digit, 128 plus.
DATA lowSign<>+0(SB)/8, $0x4145454141414143
DATA lowSign<>+8(SB)/8, $0x0109091989294141
GLOBL lowSign<>(SB), RODATA|NOPTR, $16
DATA highSign<>+0(SB)/8, $0x0000102048860101
DATA highSign<>+8(SB)/8, $0x0000000000000000
GLOBL highSign<>(SB), RODATA|NOPTR, $16

// The same of small letters: 1 and 2 end the name of a scheme, 4 and 8 stand before such an end, 16 and 32 before those.
DATA lowTail<>+0(SB)/8, $0x0800152a29221000
DATA lowTail<>+8(SB)/8, $0x0000010411000600
GLOBL lowTail<>(SB), RODATA|NOPTR, $16
DATA highTail<>+0(SB)/8, $0x2a15000000000000
DATA highTail<>+8(SB)/8, $0x0000000000000000
GLOBL highTail<>(SB), RODATA|NOPTR, $16

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
DATA ends<>+0(SB)/8, $0x0303030303030303
DATA ends<>+8(SB)/8, $0x0303030303030303
DATA ends<>+16(SB)/8, $0x0303030303030303
DATA ends<>+24(SB)/8, $0x0303030303030303
GLOBL ends<>(SB), RODATA|NOPTR, $32
DATA before<>+0(SB)/8, $0x0c0c0c0c0c0c0c0c
DATA before<>+8(SB)/8, $0x0c0c0c0c0c0c0c0c
DATA before<>+16(SB)/8, $0x0c0c0c0c0c0c0c0c
DATA before<>+24(SB)/8, $0x0c0c0c0c0c0c0c0c
GLOBL before<>(SB), RODATA|NOPTR, $32
DATA third<>+0(SB)/8, $0x3030303030303030
DATA third<>+8(SB)/8, $0x3030303030303030
DATA third<>+16(SB)/8, $0x3030303030303030
DATA third<>+24(SB)/8, $0x3030303030303030
GLOBL third<>(SB), RODATA|NOPTR, $32
DATA tail<>+0(SB)/8, $0x1515151515151515
DATA tail<>+8(SB)/8, $0x1515151515151515
DATA tail<>+16(SB)/8, $0x1515151515151515
DATA tail<>+24(SB)/8, $0x1515151515151515
GLOBL tail<>(SB), RODATA|NOPTR, $32

// CHUNK sifts the 32 bytes in Y0; Y15 has the letters of the 32 before. The bits of the lane that are moved to the top of each byte
// are taken out as a mask.
#define CHUNK(at) \
	VPMOVMSKB Y0, R8 \
	VPAND Y0, Y8, Y1 \
	VPSRLW $4, Y0, Y2 \
	VPAND Y2, Y8, Y2 \
	VPSHUFB Y1, Y4, Y1 \
	VPSHUFB Y2, Y5, Y2 \
	VPAND Y1, Y2, Y1 \
	VPOR Y0, Y9, Y2 \
	VPSRLW $4, Y2, Y3 \
	VPAND Y2, Y8, Y2 \
	VPAND Y3, Y8, Y3 \
	VPSHUFB Y2, Y6, Y2 \
	VPSHUFB Y3, Y7, Y3 \
	VPAND Y2, Y3, Y2 \
	VPMOVMSKB Y1, R9 \
	VPSLLW $1, Y1, Y3 \
	VPMOVMSKB Y3, R10 \
	VPSLLW $6, Y1, Y3 \
	VPMOVMSKB Y3, R11 \
	VPAND Y1, Y10, Y1 \
	VPADDB Y1, Y11, Y1 \
	VPMOVMSKB Y1, R12 \
	ORL R12, R8 \
	ORL R11, R9 \
	VPERM2I128 $0x21, Y2, Y15, Y3 \
	VPALIGNR $15, Y3, Y2, Y0 \
	VPAND Y0, Y12, Y0 \
	VPALIGNR $14, Y3, Y2, Y1 \
	VPAND Y1, Y13, Y1 \
	VPOR Y0, Y1, Y0 \
	VPALIGNR $13, Y3, Y2, Y1 \
	VPAND Y1, Y14, Y1 \
	VPOR Y0, Y1, Y0 \
	VMOVDQA Y2, Y15 \
	VPSRLW $1, Y0, Y1 \
	VPOR Y0, Y1, Y0 \
	VPAND tail<>(SB), Y0, Y0 \
	VPCMPEQB tail<>(SB), Y0, Y0 \
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
	VBROADCASTI128 lowTail<>(SB), Y6
	VBROADCASTI128 highTail<>(SB), Y7
	VMOVDQU half<>(SB), Y8
	VMOVDQU small<>(SB), Y9
	VMOVDQU marks<>(SB), Y10
	VMOVDQU carry<>(SB), Y11
	VMOVDQU ends<>(SB), Y12
	VMOVDQU before<>(SB), Y13
	VMOVDQU third<>(SB), Y14
	VPXOR Y15, Y15, Y15
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
