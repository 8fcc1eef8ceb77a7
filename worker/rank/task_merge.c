/* task_merge.c: runs a merge job. It reads the model and the adapter from their directories,
 * tensor by tensor, and writes the merged model to a new directory. */
#include <stdlib.h>
#include "api/core/clock.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jwrite.h"
#include "api/core/mem.h"
#include "worker/ckpt/ckpt.h"
#include "worker/ckpt/steps.h"
#include "worker/hf/elements.h"
#include "worker/hf/hf.h"
#include "worker/plan/merge_sizes.h"
#include "worker/rank/run.h"
#include "worker/rank/space.h"
#include "worker/rank/weights.h"

struct merge_task {
    struct run *r;
    struct weights_merge from;
    struct merge_sizes sizes;
    struct hf_elements *elements; /* owned */
    int64_t unit;                 /* bytes of an element of the merged model */
    int64_t adapter_used;         /* elements of PLAN_MERGE_ADAPTER that were in use */
    bool found;                   /* an earlier attempt has merged */
    struct ckpt_info saved;
};

static void still(void *arg)
{
    run_stopped(((struct merge_task *)arg)->r);
}

static int read_elements(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *e)
{
    struct merge_task *g = arg;
    (void)which;
    if (run_stopped(g->r))
        return err_set(e, ERR_ABORTED, "stopped on request after %.0f bytes",
                       progress_done(&g->r->progress));
    if (hf_elements_read(g->elements, offset, n, out, e)) return -1;
    progress_add(&g->r->progress, (double)(n * g->unit));
    return 0;
}

static void *item(const struct merge_task *g, enum plan_id id)
{
    const struct plan_item *it = &g->r->plan.item[id];
    return it->size ? (char *)g->r->arena + it->offset : NULL;
}

/* Checks that the disks have room for the merged model, with `beside` bytes of other files, and for
 * its copy in output.path. */
static int check_room(const struct merge_task *g, int64_t beside, struct err *e)
{
    return space_check("the merged model", g->r->args->job_dir, g->r->publish.dir,
                       g->sizes.elements * g->unit + beside, e);
}

static int open_merging(struct merge_task *g, struct err *e)
{
    struct run *r = g->r;
    const struct model_shape *m = &r->spec->model.shape;
    char text[400];
    int64_t beside = 0;
    /* This is checked first, because it takes long to find the digest of the base. */
    if (check_room(g, 0, e)) return -1;
    if (weights_merge(r, still, g, &g->from, e)) return -1;
    if (space_of_files(g->from.beside, &beside, e) || check_room(g, beside, e)) return -1;
    if (weights_left_text(&g->from.left, "the merged model goes", text, sizeof text) &&
        link_send_note(r->link, "files_left_out", text, e))
        return -1;
    g->elements = hf_elements_open(g->from.model, g->from.adapter, m, item(g, PLAN_MERGE_BLOCKS),
                                   e);
    return g->elements ? 0 : -1;
}

static int save(struct merge_task *g, struct err *e)
{
    static const enum dtype dtypes[PRECISION_N] = {
        [PRECISION_FP32] = DT_F32, [PRECISION_BF16] = DT_BF16, [PRECISION_FP16] = DT_F16};
    struct run *r = g->r;
    const struct hf_beside beside = {g->from.beside, r->spec->data.tokenizer == TOKENIZER_BYTE,
                                     still, g};
    const struct ckpt_arrays a = {
        .dtype = dtypes[r->plan.precision],
        .flow = {.read = read_elements, .still = still, .arg = g, .be = r->be},
        .beside = &beside,
        .fenced = r->args->shared,
        .room = {item(g, PLAN_MERGE_ADAPTER), item(g, PLAN_MERGE_FILE), &g->adapter_used}};
    const int64_t since_us = clock_us();
    if (ckpt_save_merged(r->args->job_dir, r->args->epoch, &r->spec->model.shape, &a, &g->saved, e))
        return -1;
    g->saved.save_ms = (clock_us() - since_us) / 1000;
    return 0;
}

/* Returns the bytes that the merge has used of the plan's buffers. An attempt that found the merged
 * model has held these buffers, and used none. */
static int64_t high(const struct merge_task *g)
{
    if (g->found) return g->r->plan.arena_size;
    const int64_t blocks = hf_elements_used(g->elements);
    const int64_t sizes[] = {4 * g->adapter_used, 4 * blocks, g->unit * blocks};
    int64_t n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) n += mem_round(sizes[i], MEM_ALIGN);
    return mem_round(n, PLAN_PAGE);
}

/* Publishes the merged model, and then reports it. After the report of a checkpoint, seqd counts
 * the failures of the job from 0 again. So an attempt that cannot publish must not send one. */
static int report(struct merge_task *g, struct err *e)
{
    struct run *r = g->r;
    char json[8192], hf[CKPT_PATH_SIZE + 8];
    struct jwrite w;
    if (ckpt_json(&g->saved, json, sizeof json) < 0)
        return err_set(e, ERR_TOO_LARGE, "the path %s is too long to report", g->saved.path);
    if (publish_checkpoint(&r->publish, g->saved.path, e) ||
        link_send_event(r->link, EV_CHECKPOINT, g->saved.step, json, e))
        return -1;
    snprintf(hf, sizeof hf, "%s/hf", g->saved.path);
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "parameters", g->sizes.elements);
    jwrite_int(&w, "adapter_parameters", g->sizes.adapters + g->sizes.saved);
    jwrite_str(&w, "weights_sha256", g->saved.weights_sha256);
    jwrite_str(&w, "checkpoint", g->saved.path);
    if (g->saved.save_ms) jwrite_double(&w, "checkpoint_mb_s", ckpt_mb_s(&g->saved));
    jwrite_str(&w, "hf", hf);
    jwrite_str(&w, "ledger", "equal"); /* no byte is sent, as planned */
    run_write_memory(&w, r, high(g), 0);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

static int remove_beside(const struct run *r, struct err *e)
{
    char path[FILE_PATH_SIZE];
    return file_join(path, e, "%s/beside", r->args->job_dir) || file_remove(path, e) ? -1 : 0;
}

/* Removes what an attempt that was killed has left, but for a merged model that is complete. Sets
 * g->found if there is one. */
static int find_merged(struct merge_task *g, struct err *e)
{
    const struct ckpt_keep keep = {.newest = 1};
    const struct rank_args *a = g->r->args;
    if (ckpt_prune(a->job_dir, &keep, a->epoch, e) || remove_beside(g->r, e)) return -1;
    const int found = ckpt_find_merged(a->job_dir, &g->saved, e);
    g->found = found > 0;
    return found < 0 ? -1 : 0;
}

static int merge(struct merge_task *g, struct err *e)
{
    struct run *r = g->r;
    const double all = (double)((g->sizes.elements + g->sizes.adapters) * g->unit);
    if (find_merged(g, e) || (!g->found && open_merging(g, e))) return -1;
    progress_begin(&r->progress, PROGRESS_BYTES, all, g->found ? all : 0);
    if (!g->found && save(g, e)) return -1;
    progress_end(&r->progress);
    return report(g, e);
}

int task_merge(struct run *r, struct err *e)
{
    struct merge_task *g = calloc(1, sizeof *g);
    if (!g) return err_set(e, ERR_IO, "out of memory");
    g->r = r;
    g->unit = precision_size(r->plan.precision);
    merge_sizes(&r->spec->model.shape, &g->sizes);
    const int rc = merge(g, e);
    hf_elements_close(g->elements);
    remove_beside(r, NULL);
    free(g);
    return rc;
}
