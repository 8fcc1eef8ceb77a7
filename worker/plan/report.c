/* report.c: describes a plan in words and as JSON. */
#include "worker/plan/report.h"

#include <stdio.h>
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/plan/merge_sizes.h"
#include "worker/plan/plan.h"
#include "worker/plan/slice.h"
#include "worker/plan/strategy.h"

static const char *const class_names[PLAN_CLASS_N] = {
    [PLAN_WEIGHTS] = "weights",     [PLAN_GRADIENTS] = "gradients",
    [PLAN_OPTIMIZER] = "optimizer", [PLAN_ACTIVATIONS] = "activations",
    [PLAN_WORKSPACE] = "workspace", [PLAN_RING] = "ring",
    [PLAN_CACHE] = "cache",         [PLAN_DATA] = "data",
};
static const char *const layout_words[LAYOUT_N] = {"auto", "contiguous", "zigzag"};
static const char *const recompute_words[RECOMPUTE_N] = {"auto", "none", "selective", "full"};
static const char *const precision_words[PRECISION_N] = {"fp32", "bf16", "fp16"};

const char *plan_class_name(enum plan_class c)
{
    return class_names[c];
}

char *plan_bytes(char *out, int64_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)n;
    int u = 0;
    while (v >= 1024 && u < 5) v /= 1024, u++;
    snprintf(out, 24, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}

static void write_memory(struct jwrite *w, const struct model_shape *m, const struct plan *p)
{
    jwrite_object(w, "memory");
    jwrite_int(w, "total_bytes", p->arena_size + p->segment_size);
    jwrite_int(w, "arena_bytes", p->arena_size);
    jwrite_int(w, "segment_bytes", p->segment_size);
    if (p->own_memory) jwrite_int(w, "host_bytes", p->host_most);
    jwrite_int(w, "rounding_bytes", p->rounding);
    if (p->disk_most) jwrite_int(w, "disk_bytes", p->disk_most);
    if (p->reference_size) jwrite_int(w, "reference_bytes", p->reference_size);
    jwrite_object(w, "by_class");
    for (int i = 0; i < PLAN_CLASS_N; i++)
        if (p->class_size[i]) jwrite_int(w, class_names[i], p->class_size[i]);
    jwrite_end(w);
    jwrite_array(w, "by_tensor");
    for (int i = 0; i < PLAN_ID_N; i++) {
        const struct plan_item *it = &p->item[i];
        if (!it->name) continue;
        jwrite_object(w, NULL);
        jwrite_str(w, "name", it->name);
        jwrite_str(w, "class", class_names[it->cls]);
        jwrite_int(w, "bytes", it->size);
        const bool lent = i == PLAN_KEPT || p->extent.logits_apart;
        if (it->shared) jwrite_bool(w, lent ? "inside_grad" : "inside_work", true);
        if (it->in_segment) jwrite_bool(w, "in_segment", true);
        if (it->in_host) jwrite_bool(w, "in_host", true);
        jwrite_end(w);
    }
    if (p->kind != JOB_MERGE) report_sections(w, m, p);
    jwrite_end(w);
    jwrite_end(w);
}

/* Writes the bytes of the store, and those that are copied to it and back from it in a step. */
static void write_offload(struct jwrite *w, const struct plan *p)
{
    const int64_t bytes = p->offload.on ? plan_offloaded(p, p->T) * p->micro_batches : 0;
    const struct offload_count state = plan_away_moves(p, 0, true);
    jwrite_object(w, "offload");
    jwrite_str(w, "what", spec_field("memory.offload")->words[plan_offload_id(p)]);
    jwrite_str(w, "where", p->own_memory ? "host" : "disk");
    jwrite_int(w, "bytes", p->offload.size);
    jwrite_int(w, "bytes_out", bytes + state.bytes_out);
    jwrite_int(w, "bytes_in", bytes + state.bytes_in);
    jwrite_end(w);
}

static void write_comm(struct jwrite *w, const struct plan *p)
{
    jwrite_object(w, "comm");
    for (int i = 0; i < PURPOSE_N; i++) {
        const struct comm_count *c = &p->comm[i];
        if (!c->messages_sent && !c->messages_received) continue;
        jwrite_object(w, purpose_name(i));
        jwrite_int(w, "bytes_sent", c->bytes_sent);
        jwrite_int(w, "bytes_received", c->bytes_received);
        jwrite_int(w, "messages_sent", c->messages_sent);
        jwrite_int(w, "messages_received", c->messages_received);
        jwrite_end(w);
    }
    jwrite_end(w);
}

/* Writes the bytes that each rank sends, summed over all purposes. A table with all purposes would
 * be long. */
static void write_sent(struct jwrite *w, const struct job_spec *spec, const struct plan *p)
{
    jwrite_array(w, "bytes_sent_by_rank");
    for (int r = 0; r < p->n_ranks; r++) {
        struct comm_count c[PURPOSE_N];
        int64_t sum = 0;
        plan_comm(&spec->model.shape, p, r, c);
        for (int i = 0; i < PURPOSE_N; i++) sum += c[i].bytes_sent;
        jwrite_int(w, NULL, sum);
    }
    jwrite_end(w);
}

/* Writes the layers of each stage, numbered from 0, and the number of micro-batches that the stage
 * keeps. The report has the memory of the stage that needs the largest amount. */
static void write_stages(struct jwrite *w, const struct plan *p)
{
    struct pipe at = p->pipe;
    jwrite_int(w, "pp", p->pp);
    jwrite_array(w, "stages");
    for (at.at = 0; at.at < at.n; at.at++) {
        jwrite_object(w, NULL);
        jwrite_int(w, "first_layer", pipe_first(&at) ? 0 : pipe_begin(&at) - 1);
        jwrite_int(w, "layers", pipe_layers(&at));
        jwrite_int(w, "kept", pipe_kept(&at, p->micro_batches));
        jwrite_int(w, "arena_bytes", p->stage_size[at.at]);
        jwrite_end(w);
    }
    jwrite_end(w);
    jwrite_int(w, "largest_stage", p->pipe.at);
}

/* Writes how a sequence is divided into rows. */
static void write_rows(struct jwrite *w, const struct plan *p)
{
    jwrite_int(w, "seq_len", p->seq_len);
    if (p->n_windows > 1) {
        jwrite_int(w, "windows", p->n_windows);
        jwrite_int(w, "window_tokens", p->S);
    }
    if (p->paged) {
        jwrite_int(w, "page_tokens", CACHE_PAGE);
        jwrite_int(w, "pages_per_rank", p->n_pages);
        jwrite_int(w, "piece_tokens", p->piece);
    }
    jwrite_int(w, "rows_per_rank", p->T);
    if (p->batch > 1) jwrite_int(w, "batch", p->batch);
    jwrite_int(w, "loss_chunk_tokens", p->loss_chunk);
}

/* Counts the model of a merge without the adapter, as the merged model has none. */
static int64_t count_parameters(const struct model_shape *whole, enum job_kind kind)
{
    struct merge_sizes z;
    if (kind != JOB_MERGE) return param_count(whole);
    merge_sizes(whole, &z);
    return z.elements;
}

int64_t plan_json(const struct job_spec *spec, const struct plan *p, char *out, size_t size)
{
    const struct model_shape whole = slice_whole(&spec->model.shape);
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "kind", spec_kind_name(spec->kind));
    jwrite_int(&w, "ranks", p->n_ranks);
    jwrite_int(&w, "sp", p->sp);
    jwrite_int(&w, "dp", p->dp);
    if (strategy_row(p->strategy)->rings) jwrite_int(&w, "ulysses", p->ulysses);
    if (p->pp > 1) write_stages(&w, p);
    if (p->tp > 1) jwrite_int(&w, "tp", p->tp);
    if (p->kind == JOB_TRAIN) {
        jwrite_int(&w, "zero", p->zero);
        if (p->zero) jwrite_int(&w, "zero_group", p->zero_group);
        jwrite_bool(&w, "fused_update", p->fused);
    }
    jwrite_int(&w, "threads", p->n_threads);
    jwrite_str(&w, "strategy", strategy_word(p->strategy));
    jwrite_str(&w, "layout", layout_words[p->layout]);
    if (strategy_has_forms(p->strategy))
        jwrite_str(&w, "form", spec_field("parallel.form")->words[p->form]);
    if (strategy_row(p->strategy)->states)
        jwrite_str(&w, "exchange", spec_field("parallel.exchange")->words[p->exchange]);
    if (p->grid[0]) {
        jwrite_int(&w, "patches", p->grid[0]);
        jwrite_int(&w, "frames", p->grid[1]);
    }
    jwrite_str(&w, "precision", precision_words[p->precision]);
    if (p->kind == JOB_TRAIN || p->kind == JOB_VERIFY)
        jwrite_str(&w, "recompute", recompute_words[p->recompute]);
    if (p->mlp_chunk) jwrite_int(&w, "mlp_chunk_tokens", p->mlp_chunk);
    if (p->kind != JOB_MERGE) write_rows(&w, p);
    jwrite_int(&w, "parameters", count_parameters(&whole, spec->kind));
    if (p->kind != JOB_MERGE) jwrite_int(&w, "micro_batches", p->micro_batches);
    jwrite_double(&w, "flops", p->flops);
    jwrite_str(&w, "reason", p->reason);
    write_memory(&w, &spec->model.shape, p);
    if (plan_stores(p)) write_offload(&w, p);
    write_comm(&w, p);
    if (p->n_ranks > 1) write_sent(&w, spec, p);
    jwrite_end(&w);
    return jwrite_finish(&w);
}
