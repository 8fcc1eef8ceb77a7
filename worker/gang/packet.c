/* packet.c: compares the size of a packet with the smallest and the largest size that packets
 * of its type may have, and checks the sizes in an ANSWER. */
#include "worker/gang/packet.h"

#include <stddef.h>
#include <string.h>
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
    [RANK_SERVING] = {sizeof(struct rank_serving), sizeof(struct rank_serving)},
    [RANK_ANSWER] = {sizeof(struct rank_answer), sizeof(struct rank_answer) + RANK_PIECE_SIZE},
};

/* Tells whether the payload of an ANSWER has as many bytes as its struct says. */
static bool answer_good(const void *payload, size_t size)
{
    struct rank_answer a;
    memcpy(&a, payload, sizeof a);
    return a.size >= 0 && size == sizeof a + (size_t)a.size;
}

bool packet_good(const struct rank_msg *head, const void *payload, int64_t size)
{
    size_t n_types = sizeof sizes / sizeof sizes[0];
    return size >= (int64_t)sizeof *head && size <= SPOOL_RECORD_SIZE && head->abi == RANK_ABI &&
           head->size == (size_t)size - sizeof *head && head->type < n_types &&
           sizes[head->type].most && head->size >= sizes[head->type].least &&
           head->size <= sizes[head->type].most &&
           (head->type != RANK_ANSWER || answer_good(payload, head->size));
}
