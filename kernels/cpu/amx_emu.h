/* amx_emu.h: the tile instructions of AMX in C, on registers that belong to the thread, for tests
 * on processors without these instructions (SEQD_EMU; amx.inc). The results are bit for bit as
 * Intel's Software Developer's Manual says. An operand that an instruction would refuse ends the
 * process with a message. */
#ifndef SEQD_CPU_AMX_EMU_H
#define SEQD_CPU_AMX_EMU_H
#ifdef __AVX512F__

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMU_TILES 8
#define EMU_ROWS  16
#define EMU_SIZE  64 /* bytes of a row */

/* The tile registers of this thread. Rows and bytes past the configured sizes are zero. rows is 0
 * if a register is not configured. */
static _Thread_local struct {
    bool configured;
    uint8_t rows[EMU_TILES], size[EMU_TILES];
    _Alignas(64) uint8_t at[EMU_TILES][EMU_ROWS][EMU_SIZE];
} emu_tiles;

static inline void emu_tile_want(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "tiles: %s\n", what);
    abort();
}

/* Emulates ldtilecfg. Its 64 bytes are the palette, the first row, 14 zeros, 16 row sizes of 2
 * bytes each, and 16 counts of rows. */
static inline void emu_tile_config(const void *from)
{
    const uint8_t *c = from;
    uint8_t used = 0;
    emu_tile_want(c[0] == 1, "ldtilecfg of another palette than 1");
    emu_tile_want(c[1] == 0, "ldtilecfg that continues in the middle of a tile");
    for (int i = 2; i < 16; i++) used |= c[i];
    for (int i = EMU_TILES; i < 16; i++) used |= c[16 + 2 * i] | c[17 + 2 * i] | c[48 + i];
    emu_tile_want(!used, "ldtilecfg with reserved bits");
    memset(&emu_tiles, 0, sizeof emu_tiles);
    for (int i = 0; i < EMU_TILES; i++) {
        const int size = c[16 + 2 * i] | c[17 + 2 * i] << 8, rows = c[48 + i];
        emu_tile_want(size <= EMU_SIZE && size % 4 == 0, "ldtilecfg: bytes of a row");
        emu_tile_want(rows <= EMU_ROWS, "ldtilecfg: rows");
        emu_tile_want(!size == !rows, "ldtilecfg: a register of rows or of bytes alone");
        emu_tiles.rows[i] = (uint8_t)rows;
        emu_tiles.size[i] = (uint8_t)size;
    }
    emu_tiles.configured = true;
}

static inline void emu_tile_release(void)
{
    memset(&emu_tiles, 0, sizeof emu_tiles);
}

static inline void emu_tile_use(int t)
{
    emu_tile_want(emu_tiles.configured, "an instruction before ldtilecfg");
    emu_tile_want(emu_tiles.rows[t] > 0, "a register that is not configured");
}

static inline void emu_tile_zero(int t)
{
    emu_tile_use(t);
    memset(emu_tiles.at[t], 0, sizeof emu_tiles.at[t]);
}

/* Emulates tileloadd. `ld` is the number of bytes from one row to the next row. */
static inline void emu_tile_load(int t, const void *from, int64_t ld)
{
    emu_tile_zero(t);
    for (int i = 0; i < emu_tiles.rows[t]; i++)
        memcpy(emu_tiles.at[t][i], (const char *)from + i * ld, emu_tiles.size[t]);
}

static inline void emu_tile_store(int t, void *to, int64_t ld)
{
    emu_tile_use(t);
    for (int i = 0; i < emu_tiles.rows[t]; i++)
        memcpy((char *)to + i * ld, emu_tiles.at[t][i], emu_tiles.size[t]);
}

/* Emulates tdpbf16ps. Each element of c has two chains of fused multiply-adds over ascending k,
 * one for the lower elements of words and one for the upper. The sums of the two chains are added
 * to each other, and then to c. Every step rounds to nearest even, and treats subnormal inputs and
 * results as 0, whatever MXCSR says. */
static inline void emu_tile_dot(int c, int a, int b)
{
    emu_tile_use(a), emu_tile_use(b), emu_tile_use(c);
    emu_tile_want(a != b && b != c && a != c, "tdpbf16ps of one register twice");
    emu_tile_want(emu_tiles.rows[c] == emu_tiles.rows[a] &&
                      emu_tiles.size[c] == emu_tiles.size[b] &&
                      emu_tiles.size[a] == 4 * emu_tiles.rows[b],
                  "tdpbf16ps of registers that do not fit");
    const unsigned mode = _mm_getcsr();
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    _mm_setcsr(0x1f80 | _MM_FLUSH_ZERO_ON | 0x40 /* subnormals are zeros */);
    /* the loads below must not be moved before the mode is set */
    __asm__ volatile("" : : : "memory");
    for (int m = 0; m < emu_tiles.rows[c]; m++) {
        __m512 low = _mm512_setzero_ps(), high = low;
        for (int k = 0; k < emu_tiles.rows[b]; k++) {
            int32_t word;
            memcpy(&word, emu_tiles.at[a][m] + 4 * k, sizeof word);
            const __m512i x = _mm512_set1_epi32(word), y = _mm512_load_si512(emu_tiles.at[b][k]);
            low = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                                  _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), low);
            high = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
                                   _mm512_castsi512_ps(_mm512_and_si512(y, upper)), high);
        }
        float *to = (float *)(void *)emu_tiles.at[c][m];
        const __mmask16 lanes = (__mmask16)((1u << emu_tiles.size[c] / 4) - 1);
        _mm512_mask_store_ps(to, lanes,
                             _mm512_add_ps(_mm512_load_ps(to), _mm512_add_ps(low, high)));
    }
    __asm__ volatile("" : : : "memory");
    _mm_setcsr(mode);
}

#endif
#endif
