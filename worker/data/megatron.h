/* megatron.h: the index of a Megatron-LM indexed dataset, PREFIX.idx beside PREFIX.bin.
 *
 *   "MMIDIDX\0\0"  u64 version 1  u8 dtype  u64 n_sequences  u64 n_indices        34 bytes
 *   i32 length[n_sequences]      tokens of each sequence
 *   i64 pointer[n_sequences]     its first byte in PREFIX.bin: sequences lie end to end
 *   i64 document[n_indices]      first sequence of each document; the last is n_sequences
 * Multimodal datasets have an i8 for each sequence after that, and are refused. */
#ifndef SEQD_DATA_MEGATRON_H
#define SEQD_DATA_MEGATRON_H

#include "worker/data/ids.h"

#define MEGATRON_HEADER 34

struct megatron_index {
    struct ids_type type;
    int64_t n_sequences, n_indices;
};

/* Parses the header, MEGATRON_HEADER bytes; file_size: of the .idx. fails: ERR_CORRUPT,
 * ERR_INVALID. */
int format_megatron_parse(const uint8_t *header, int64_t file_size, struct megatron_index *out,
                          struct err *e);

/* format_megatron_idx turns PREFIX, PREFIX.bin or PREFIX.idx (patterns allowed) into the path of
 * the .idx; format_megatron_bin turns that into the path of its .bin. */
int format_megatron_idx(const char *path, char out[FILE_PATH_SIZE], struct err *e);
int format_megatron_bin(const char *path, char out[FILE_PATH_SIZE], struct err *e);

#endif
