/* job_pack.h: packs bytes most of which are zero. After the size of the bytes, runs of zeros and of
 * other bytes take turns, each with its length before it. */
#ifndef SEQD_DAEMON_STATE_JOB_PACK_H
#define SEQD_DAEMON_STATE_JOB_PACK_H

#include <stddef.h>
#include <stdint.h>

/* Returns the packed bytes, malloc'd. Each run of at least 4 zeros and the bytes after it take two
 * lengths, so the result has at most half as many bytes again. */
uint8_t *job_pack_bytes(const uint8_t *from, size_t size, size_t *packed_size);
/* Returns the `*size` bytes that were packed, malloc'd. */
uint8_t *job_pack_open(const uint8_t *packed, size_t *size);
/* Returns the size of the packed bytes. */
size_t job_pack_size(const uint8_t *packed);

#endif
