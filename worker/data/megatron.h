/* megatron.h: reads the index of a Megatron-LM indexed dataset, PREFIX.idx beside PREFIX.bin.
 *
 *   "MMIDIDX\0\0"  u64 version 1  u8 dtype  u64 n_sequences  u64 n_indices        34 bytes
 *   i32 length[n_sequences]      number of tokens of each sequence
 *   i64 pointer[n_sequences]     byte offset of each sequence in PREFIX.bin, which has no gaps
 *   i64 document[n_indices]      first sequence of each document; the last element is n_sequences
 * The index of a multimodal dataset has, after these arrays, one more i8 for each sequence.
 * Such an index is refused. */
#ifndef SEQD_DATA_MEGATRON_H
#define SEQD_DATA_MEGATRON_H

#include "worker/data/ids.h"

#define MEGATRON_HEADER 34

/* Makes the path of the .idx from PREFIX, PREFIX.bin or PREFIX.idx, each of which may be a
 * pattern. */
int format_megatron_idx(const char *path, char out[FILE_PATH_SIZE], struct err *e);

#endif
