/* job_image.c: an image is a head and the packed bytes of the job, of its need, of its places and
 * of its packed spec, without pointers and without members beside the fold. */
#include "daemon/state/job_image.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/mem.h"
#include "api/core/version.h"
#include "daemon/state/job_pack.h"

#define MAX_IMAGE ((size_t)1 << 20) /* a job, a need, 64 places, and a spec of its largest size */

struct head {
    uint8_t build[VERSION_BUILD_SIZE];
    uint64_t sum; /* sum_of the bytes after the head */
};

/* FNV-1a over the size and words of 8 bytes. */
static uint64_t sum_of(const uint8_t *bytes, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325u ^ size, word;
    for (; size; bytes += sizeof word, size -= sizeof word) {
        const size_t n = size < sizeof word ? size : sizeof word;
        word = 0;
        memcpy(&word, bytes, n);
        sum = (sum ^ word) * 0x100000001b3u;
        sum ^= sum >> 32;
        if (n < sizeof word) break;
    }
    return sum;
}

static bool has_image(const struct job *j)
{
    return j->state == JOB_QUEUED && !j->attempts && !j->attempt && j->packed && !j->spec &&
           !j->failure && !j->n_left && !j->gpus && !j->farthest.n_names && !j->farthest.n_failed &&
           !j->stored && !j->result && !j->metrics && !j->serving && !j->n_orders && !j->misread &&
           !*j->only;
}

static size_t need_size(const struct need *n)
{
    const size_t n_stages = n->n_stages > 1 ? (size_t)n->n_stages : 0;
    return offsetof(struct need, stage) + n_stages * sizeof *n->stage;
}

static size_t places_size(const struct job *j)
{
    return (size_t)j->n_places * sizeof *j->places;
}

/* Clears the pointers, and the members that are not of the fold. */
static void clear_beside(struct job *j)
{
    j->spec = NULL, j->packed = NULL, j->places = NULL, j->away_ms = NULL, j->gpus = NULL;
    j->after = NULL, j->left = NULL, j->failure = NULL, j->need = NULL, j->plan = NULL;
    j->farthest.name = NULL, j->farthest.failed = NULL;
    j->shared_reason = NULL, j->reason_code = j->reason = NULL;
    j->next = j->next_placed = j->last_placed = NULL;
    j->progress = (struct rank_progress){0};
    j->wake_ms = j->based_seq = j->imaged = 0;
    j->n_skipped = 0;
    j->over_disk = j->rewrite = j->in_placed = false;
}

uint8_t *job_image_write(const struct job *j, size_t *size)
{
    struct head h = {.sum = 0};
    if (!has_image(j) || !version_build(h.build)) return NULL;
    const size_t spec = job_pack_size(j->packed);
    const size_t n[] = {sizeof *j, need_size(j->need), places_size(j), spec};
    uint8_t *all = mem_scratch(n[0] + n[1] + n[2] + n[3]), *to = all;
    memcpy(to, j, n[0]);
    clear_beside((struct job *)to);
    memcpy(to += n[0], j->need, n[1]);
    if (n[2])
        memcpy(to += n[1], j->places, n[2]);
    else
        to += n[1];
    memcpy(to += n[2], j->packed, n[3]);
    size_t n_packed;
    uint8_t *packed = job_pack_bytes(all, n[0] + n[1] + n[2] + n[3], &n_packed);
    uint8_t *image = malloc(sizeof h + n_packed);
    if (!image) abort();
    h.sum = sum_of(packed, n_packed);
    memcpy(image, &h, sizeof h);
    memcpy(image + sizeof h, packed, n_packed);
    free(packed);
    free(all);
    *size = sizeof h + n_packed;
    return image;
}

static void *copy_of(const uint8_t *from, size_t size)
{
    if (!size) return NULL;
    void *to = malloc(size);
    if (!to) abort();
    return memcpy(to, from, size);
}

/* Makes the job from the `size` bytes that were packed. */
static struct job *make(const uint8_t *from, size_t size)
{
    const uint8_t *end = from + size;
    struct job *j = copy_of(from, sizeof *j);
    from += sizeof *j;
    struct need head;
    memcpy(&head, from, offsetof(struct need, stage));
    j->need = copy_of(from, need_size(&head));
    from += need_size(&head);
    j->places = copy_of(from, places_size(j));
    from += places_size(j);
    j->packed = copy_of(from, (size_t)(end - from));
    if (j->n_places && !(j->away_ms = calloc((size_t)j->n_places, sizeof *j->away_ms))) abort();
    j->reason_code = j->reason = "";
    if (j->is.n_after) job_set_facts(j), job_rest(j);
    return j;
}

struct job *job_image_read(int64_t id, const uint8_t *image, size_t size)
{
    struct head h, own = {.sum = 0};
    if (size <= sizeof h || size > MAX_IMAGE || !version_build(own.build)) return NULL;
    memcpy(&h, image, sizeof h);
    if (memcmp(h.build, own.build, sizeof h.build) ||
        h.sum != sum_of(image + sizeof h, size - sizeof h))
        return NULL;
    size_t n;
    uint8_t *all = job_pack_open(image + sizeof h, &n);
    struct job *j = make(all, n);
    free(all);
    if (j->id == id) return j;
    job_destroy(j);
    return NULL;
}
