#include "worker/plan/plan.h"

#include <assert.h>
#include <stdio.h>
#include "api/core/mem.h"

#define ALIGN 16 /* elements: one cache line */

/* Tensors of one layer in their order; `joined`: follows the one before without a gap. */
static const struct part {
    const char *name;
    bool joined;
} parts[PARAM_PER_LAYER] = {
    {"input_layernorm", false}, {"self_attn.q_proj", false}, {"self_attn.k_proj", true},
    {"self_attn.v_proj", true}, {"self_attn.o_proj", false}, {"post_attention_layernorm", false},
    {"mlp.gate_proj", false},   {"mlp.up_proj", true},       {"mlp.down_proj", false},
};

static void part_shape(const struct model_shape *m, int part, int64_t *rows, int64_t *cols)
{
    const int64_t C = m->width, HD = m->n_heads * m->head_dim, KD = m->n_kv_heads * m->head_dim;
    const int64_t shapes[PARAM_PER_LAYER][2] = {
        {C, 0}, {HD, C},           {KD, C},           {KD, C},          {C, HD},
        {C, 0}, {m->ffn_width, C}, {m->ffn_width, C}, {C, m->ffn_width}};
    *rows = shapes[part][0];
    *cols = shapes[part][1];
}

static int64_t count_of(int64_t rows, int64_t cols)
{
    return cols ? rows * cols : rows;
}

/* Offsets of a layer's tensors from its start; returns the aligned length of a layer. */
static int64_t part_offsets(const struct model_shape *m, int64_t offset[PARAM_PER_LAYER])
{
    int64_t at = 0;
    for (int i = 0; i < PARAM_PER_LAYER; i++) {
        int64_t rows, cols;
        part_shape(m, i, &rows, &cols);
        if (!parts[i].joined) at = mem_round(at, ALIGN);
        offset[i] = at;
        at += count_of(rows, cols);
    }
    return mem_round(at, ALIGN);
}

void param_map(const struct model_shape *m, struct param_map *out)
{
    int64_t part[PARAM_PER_LAYER];
    const int64_t table = mem_round(m->vocab * m->width, ALIGN);
    *out = (struct param_map){.embed = 0, .layer0 = table, .layer_stride = part_offsets(m, part)};
    out->in_norm = part[0];
    out->q = part[1];
    out->kv = part[2];
    out->o = part[4];
    out->post_norm = part[5];
    out->gate_up = part[6];
    out->down = part[8];
    out->norm = out->layer0 + m->n_layers * out->layer_stride;
    const int64_t behind = out->norm + mem_round(m->width, ALIGN);
    out->head = m->tied ? out->embed : behind;
    out->end = m->tied ? behind : behind + table;
}

int64_t param_count(const struct model_shape *m)
{
    struct param_map map;
    param_map(m, &map);
    return map.end;
}

int param_tensors(const struct model_shape *m)
{
    return PARAM_PER_LAYER * m->n_layers + (m->tied ? 2 : 3);
}

static void fill(struct param *p, int64_t rows, int64_t cols, int64_t offset)
{
    p->rows = rows;
    p->cols = cols;
    p->offset = offset;
    p->count = count_of(rows, cols);
    p->decay = cols > 0;
}

void param_get(const struct model_shape *m, int i, struct param *out)
{
    const int last_layer_end = 1 + PARAM_PER_LAYER * m->n_layers;
    struct param_map map;
    param_map(m, &map);
    assert(i >= 0 && i < param_tensors(m));
    if (i == 0) {
        snprintf(out->name, sizeof out->name, "model.embed_tokens.weight");
        fill(out, m->vocab, m->width, map.embed);
    } else if (i < last_layer_end) {
        const int layer = (i - 1) / PARAM_PER_LAYER, part = (i - 1) % PARAM_PER_LAYER;
        int64_t offset[PARAM_PER_LAYER], rows, cols;
        part_offsets(m, offset);
        part_shape(m, part, &rows, &cols);
        snprintf(out->name, sizeof out->name, "model.layers.%d.%s.weight", layer, parts[part].name);
        fill(out, rows, cols, map.layer0 + layer * map.layer_stride + offset[part]);
    } else if (i == last_layer_end) {
        snprintf(out->name, sizeof out->name, "model.norm.weight");
        fill(out, m->width, 0, map.norm);
    } else {
        snprintf(out->name, sizeof out->name, "lm_head.weight");
        fill(out, m->vocab, m->width, map.head);
    }
}

int param_list(const struct model_shape *m, struct param *out, int max)
{
    const int n = param_tensors(m);
    for (int i = 0; i < n && i < max; i++) param_get(m, i, &out[i]);
    return n;
}
