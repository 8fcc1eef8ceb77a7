/* packet.c: compares the size of a packet with the smallest and the largest size that packets
 * of its type may have. */
#include "worker/gang/packet.h"

#include <stddef.h>
#include "api/core/spool.h"

/* The smallest and the largest payload, in bytes, of each packet that a rank may send. If `most`
 * is 0, no rank may send a packet of this type. READY has no payload, but its `most` is 1 so that
 * ranks may send it. */
static const struct {
    size_t least, most;
} sizes[] = {
    [RANK_BLOB] = {0, BLOB_SIZE},
    [RANK_READY] = {0, 1},
    [RANK_STEP] = {sizeof(struct rank_step), sizeof(struct rank_step)},
    [RANK_PROGRESS] = {sizeof(struct rank_progress), sizeof(struct rank_progress)},
    [RANK_EVENT] = {sizeof(struct rank_event), sizeof(struct rank_event) + RANK_RESULT_SIZE},
    [RANK_RESULT] = {1, RANK_RESULT_SIZE},
    [RANK_FAIL] = {sizeof(struct rank_fail), sizeof(struct rank_fail)},
};

bool packet_good(const struct rank_msg *head, int64_t size)
{
    size_t n_types = sizeof sizes / sizeof sizes[0];
    return size >= (int64_t)sizeof *head && size <= SPOOL_RECORD_SIZE && head->abi == RANK_ABI &&
           head->size == (size_t)size - sizeof *head && head->type < n_types &&
           sizes[head->type].most && head->size >= sizes[head->type].least &&
           head->size <= sizes[head->type].most;
}
