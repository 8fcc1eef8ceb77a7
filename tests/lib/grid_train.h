/* grid_train.h: trains a small Transformer-2D on videos of one size. The ranks exchange data for
 * its attention in one of several ways (enum grid_way). The number of bytes that a step sends is
 * read from the ledger. */
#ifndef SEQD_TESTS_GRID_TRAIN_H
#define SEQD_TESTS_GRID_TRAIN_H

#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/latents.h"
#include "worker/comm/comm.h"
#include "worker/data/flow_batch.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/strategy.h"
#include "worker/plan/volume.h"

enum { GRID_SAMPLES = 4, GRID_CHANNELS = 2, GRID_CAPTION = 3, GRID_CAPTION_COLS = 6 };

/* A model. side is the number of patches of 2 x 2 in each row and in each column of the
 * latents. */
struct grid_model {
    int64_t frames, side, width;
    int n_layers, n_heads;
    bool captions;
    int family; /* enum model_family; 0 means Transformer-2D */
};

struct grid_data {
    char dir[64];
    struct data *data;
    struct grid_model model;
};

static inline void grid_spec(const struct grid_data *d, enum grid_way way, struct job_spec *s)
{
    const struct grid_model *g = &d->model;
    struct err e = {0};
    engine_spec(s, 1);
    s->model.shape = (struct model_shape){.family = g->family ? g->family : FAMILY_T2D,
                                          .n_layers = g->n_layers,
                                          .width = g->width,
                                          .n_heads = g->n_heads,
                                          .in_channels = GRID_CHANNELS,
                                          .base_size = g->family == FAMILY_STDIT3 ? 512 : 0,
                                          .type_vocab = g->family == FAMILY_LATTE ? GRID_SAMPLES + 1
                                                                                  : 0,
                                          .max_pos = 64,
                                          .rope_theta = 10000,
                                          .caption_channels = g->captions ? GRID_CAPTION_COLS : 0,
                                          .text_len = g->captions ? GRID_CAPTION : 0,
                                          .grid_way = way};
    CHECK_MSG(!family_complete(&s->model.shape, &e), "%s", e.text);
    if (way != GRID_TENSOR) s->parallel.form = FORM_SWITCH + (int)way; /* as in a job */
    CHECK(way == GRID_TENSOR ||
          strategy_form(STRATEGY_DSP, s->parallel.form)->grid_way == (int)way);
    s->data.frames = g->frames;
    s->data.height = s->data.width = g->side;
    s->data.seq_len = g->frames * g->side * g->side;
    s->train.global_batch = 1;
    s->memory.recompute = RECOMPUTE_SELECTIVE;
}

static inline void grid_open(struct grid_data *d, const struct grid_model *g)
{
    struct latents_made made[GRID_SAMPLES];
    const char *roots[] = {d->dir};
    char path[128];
    struct job_spec *s = malloc(sizeof *s);
    struct data_stats st;
    struct err e = {0};
    d->model = *g;
    snprintf(d->dir, sizeof d->dir, "/tmp/grid_train.XXXXXX");
    if (!s || !mkdtemp(d->dir)) abort();
    for (int i = 0; i < GRID_SAMPLES; i++)
        made[i] = (struct latents_made){
            g->frames, g->side, g->side, g->captions ? GRID_CAPTION : 0, 256, 256, g->frames};
    latents_manifest(d->dir, "train", made, GRID_SAMPLES, GRID_CHANNELS,
                     g->captions ? GRID_CAPTION_COLS : 0);
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = JOB_TRAIN;
    s->data.n_train = 1;
    s->data.train[0] = (struct spec_source){.format = DATA_LATENTS, .eod = -1};
    snprintf(path, sizeof path, "%s/train.jsonl", d->dir);
    CHECK(spec_intern(s, path, strlen(path), &s->data.train[0].path) == 0);
    snprintf(path, sizeof path, "%s/prepared", d->dir);
    d->data = data_prepare(s, NULL, roots, 1, path, NULL, &st, &e)
                  ? NULL
                  : data_open(path, st.id, DATA_CHECK, &e);
    if (!d->data) printf("  %s\n", e.text), abort();
    free(s);
}

static inline void grid_close(struct grid_data *d)
{
    data_close(d->data);
    file_remove(d->dir, NULL);
}

/* Returns the bytes and messages that a rank sent and received for its grid_way in the step that
 * has just ended. */
static inline struct comm_count grid_moved(const struct train *t)
{
    static const enum purpose purposes[] = {PURPOSE_SWITCH, PURPOSE_HEADS, PURPOSE_TENSOR};
    struct comm_count sum = {0};
    for (int i = 0; t->model.job && i < 3; i++)
        volume_add(&sum, comm_ledger(t->model.job)[purposes[i]], 1);
    return sum;
}

/* Runs r->steps steps on P ranks. If the way is GRID_TENSOR, P is parallel.tp. In all other cases
 * P is parallel.sp. */
static inline void grid_go(struct grid_data *d, struct engine_run *r, const struct job_spec *spec,
                           int P)
{
    struct job_spec *s = malloc(sizeof *s);
    struct err e = {0};
    if (!s) abort();
    *s = *spec;
    const struct order_options oo = latents_order_options(s, SET_TRAIN);
    struct data_order *order = data_order_open(d->data, &oo, &e);
    if (!order) printf("  %s\n", e.text), abort();
    const struct flow_source source = {d->data, order, s, false};
    const bool tensor = s->model.shape.grid_way == GRID_TENSOR;
    r->P = tensor ? 1 : P;
    r->tp = tensor ? P : 1;
    r->source = train_source_latents(&source);
    engine_go(r, s);
    data_order_close(order);
    free(s);
}

#endif
