/* Checks where the compiler places the switches of DSP. In every diffusion family, they must be at
 * the places in the table below, which was written by hand. In random sections, no other labelling
 * may cost less. */
#include "tests/lib/test.h"

#include <stdlib.h>
#include "worker/family/config.h"
#include "worker/family/family.h"
#include "worker/program/op_rules.h"
#include "worker/program/spread.h"

/* ---- the families ---------------------------------------------------------------------------- */

/* The operations of each kind of layer, where ".A" means rows that are divided along time. */
static const struct placed {
    const char *config, *layer[4];
} placed[] = {
    {"{\"model_type\":\"STDiT3\",\"hidden_size\":32,\"depth\":2,\"num_heads\":4,\"qk_norm\":true,"
     "\"patch_size\":[1,2,2],\"caption_channels\":16,\"model_max_length\":8}",
     {"table_add norm modulate switch01 linear.A norm.A norm.A attention.A linear.A switch10 gate "
      "linear linear cross linear norm modulate linear act linear gate",
      "table_add norm modulate linear norm norm rope rope attention linear gate linear linear "
      "cross "
      "linear norm modulate linear act linear gate"}},
    {"{\"model_type\":\"STDiT\",\"hidden_size\":32,\"depth\":2,\"num_heads\":4,"
     "\"patch_size\":[1,2,2],\"caption_channels\":16,\"model_max_length\":8}",
     {"table_add norm modulate switch01 linear.A attention.A linear.A switch10 gate position_1d "
      "linear attention linear gate linear linear cross linear norm modulate linear act linear "
      "gate",
      "table_add norm modulate switch01 linear.A attention.A linear.A switch10 gate linear "
      "attention "
      "linear gate linear linear cross linear norm modulate linear act linear gate"}},
    {"{\"model_type\":\"transformer_2d\",\"hidden_size\":32,\"depth\":2,\"num_heads\":4,"
     "\"patch_size\":[1,2,2]}",
     {"switch01 table_add norm.A modulate.A linear.A attention.A linear.A gate.A norm.A modulate.A "
      "linear.A act.A linear.A gate.A switch10",
      "table_add norm modulate linear attention linear gate norm modulate linear act linear gate"}},
    {"{\"model_type\":\"transformer_2d\",\"hidden_size\":32,\"depth\":2,\"num_heads\":4,"
     "\"qk_norm\":true,\"patch_size\":[1,2,2],\"caption_channels\":16,\"model_max_length\":8}",
     {"switch01 table_add norm.A modulate.A linear.A norm.A norm.A attention.A linear.A gate.A "
      "linear.A linear cross.A linear.A norm.A modulate.A linear.A act.A linear.A gate.A switch10",
      "table_add norm modulate linear norm norm attention linear gate linear linear cross linear "
      "norm modulate linear act linear gate"}},
    {"{\"model_type\":\"latte\",\"hidden_size\":32,\"num_hidden_layers\":4,"
     "\"num_attention_heads\":4,\"patch_size\":[1,2,2]}",
     {"linear norm modulate switch01 linear.A attention.A linear.A switch10 gate norm modulate "
      "linear act linear gate",
      "position_1d linear norm modulate linear attention linear gate norm modulate linear act "
      "linear "
      "gate",
      "linear norm modulate linear attention linear gate norm modulate linear act linear gate"}},
};

static void describe(const struct program *p, char *to, size_t size)
{
#define NAME(kind, name) #name,
    static const char *const names[] = {OPERATORS(NAME)};
#undef NAME
    to[0] = 0;
    for (int i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->op[i];
        const bool moves = o->kind == OP_SWITCH;
        const bool away = !moves && o->out[0] != PROG_NONE && p->value[o->out[0]].rows == ROWS_ALT;
        char text[32] = "";
        if (moves) snprintf(text, sizeof text, "%d%d", o->u.dims.from, o->u.dims.to);
        const size_t n = strlen(to);
        snprintf(to + n, size - n, "%s%s%s%s", n ? " " : "", names[o->kind], text,
                 away ? ".A" : "");
    }
}

/* Checks that every operation gets its rows in the layout that it needs, and that the input and
 * the output of the section are divided along space. */
static void check_rows(const struct program *p)
{
    for (int i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->op[i];
        for (int k = 0; k < OP_INS; k++) {
            if (o->in[k] == PROG_NONE) continue;
            const enum rows_id rows = p->value[o->in[k]].rows;
            CHECK(prog_writer(p, o->in[k]) < i);
            if (rows > ROWS_ALT) continue;
            if (o->kind == OP_ATTENTION)
                CHECK(rows == (o->u.attn.dim == 0 ? ROWS_ALT : ROWS_T));
            else if (o->kind == OP_SWITCH)
                CHECK(rows == (o->u.dims.from == 0 ? ROWS_T : ROWS_ALT));
            else
                CHECK(o->out[0] == PROG_NONE || p->value[o->out[0]].rows == rows);
        }
    }
    if (p->has_input) CHECK(p->value[PROG_X].rows == ROWS_T);
    if (p->result != PROG_NONE) CHECK(p->value[p->result].rows == ROWS_T);
}

static void test_families(void)
{
    static struct family f;
    for (size_t i = 0; i < sizeof placed / sizeof *placed; i++) {
        struct model_shape m;
        struct err e = {0};
        const char *config = placed[i].config;
        char text[1024];
        CHECK_MSG(config_parse(config, strlen(config), "config.json", &m, &e) == 0, "%s", e.text);
        family_write(&m, &f);
        check_rows(&f.in);
        check_rows(&f.out);
        for (int k = 0; k < f.n_kinds; k++) {
            describe(&f.layer[k], text, sizeof text);
            CHECK_MSG(placed[i].layer[k] && !strcmp(text, placed[i].layer[k]), "%s, kind %d: %s",
                      family_words[m.family], k, text);
            check_rows(&f.layer[k]);
        }
    }
}

/* ---- random sections ------------------------------------------------------------------------- */

enum { MAX_OPS = 9 };

static uint32_t draw(uint32_t *s, uint32_t n)
{
    *s = *s * 1664525u + 1013904223u;
    return (*s >> 16) % n;
}

static struct value fresh(int64_t cols)
{
    return (struct value){.name = "x", .cols = cols, .keep = KEEP_NONE_MODE};
}

static int draw_value(uint32_t *seed, const struct program *p, const int made[], int n_made,
                      int64_t cols, int not_this)
{
    for (int tries = 0; tries < 8; tries++) {
        const int v = made[draw(seed, (uint32_t)n_made)];
        if (p->value[v].cols == cols && v != not_this) return v;
    }
    return PROG_NONE;
}

/* Adds a product with three times the columns, and an attention that reads two windows of it. */
static int draw_attention(uint32_t *seed, struct program *p, int x, int64_t C)
{
    const struct value wide = fresh(3 * C), out = fresh(C);
    const int w = prog_tensor(p, "qkv", 3 * C, C, INIT_NORMAL);
    const int qkv = prog_op(
        p, &(struct op){.kind = OP_LINEAR, .in = {x, PROG_NONE}, .w = w, .n_w = 1}, &wide);
    const int q = prog_view(p, qkv, 0, C), kv = prog_view(p, qkv, C, 2 * C);
    return prog_op(p,
                   &(struct op){.kind = OP_ATTENTION,
                                .in = {q, kv},
                                .u.attn = {.n_heads = 1,
                                           .n_kv_heads = 1,
                                           .head_dim = C,
                                           .scale = 1,
                                           .dim = (int)draw(seed, 2)}},
                   &out);
}

static int draw_op(uint32_t *seed, struct program *p, const int made[], int n_made)
{
    const int x = made[draw(seed, (uint32_t)n_made)];
    const int64_t C = p->value[x].cols;
    const struct value out = fresh(C), other = fresh(C == 4 ? 8 : 4);
    switch (draw(seed, 5)) {
    case 0:
    case 1: return draw_attention(seed, p, x, C);
    case 2:
        return prog_op(p, &(struct op){.kind = OP_ACT, .in = {x}, .u.act.kind = ACT_SILU}, &out);
    case 3: {
        const int y = draw_value(seed, p, made, n_made, C, x);
        if (y == PROG_NONE) break;
        return prog_op(p, &(struct op){.kind = OP_MIX, .in = {x, y}, .u.mix = {1, 1}}, &out);
    }
    default: break;
    }
    const int w = prog_tensor(p, "w", other.cols, C, INIT_NORMAL);
    return prog_op(p, &(struct op){.kind = OP_LINEAR, .in = {x, PROG_NONE}, .w = w, .n_w = 1},
                   &other);
}

static void draw_section(uint32_t *seed, struct program *p)
{
    int made[MAX_OPS] = {0}, n_made = 1;
    const int n = 1 + (int)draw(seed, 5);
    prog_init(p, "");
    prog_input(p, 4);
    for (int i = 0; i < n && p->n_ops < MAX_OPS - 1; i++) {
        const int v = draw_op(seed, p, made, n_made);
        made[n_made++] = v;
    }
    p->result = made[n_made - 1];
}

/* Bit i of `labels` is the label of operation i. Computes the number of switches, and the number
 * of columns that they send. */
static bool labelled(const struct program *p, unsigned labels, int64_t *cols, int *n)
{
    unsigned read[PROG_VALUES] = {0}, written[PROG_VALUES] = {0};
    bool windows[PROG_VALUES] = {false};
    for (int i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->op[i];
        const unsigned label = labels >> i & 1;
        if (o->kind == OP_ATTENTION && label == (unsigned)o->u.attn.dim) return false;
        written[o->out[0]] = label;
        for (int k = 0; k < OP_INS; k++) {
            if (o->in[k] == PROG_NONE) continue;
            const int v = prog_base(p, o->in[k]);
            read[v] |= 1u << label;
            windows[v] |= v != o->in[k];
        }
    }
    read[p->result] |= 1;
    *cols = *n = 0;
    for (int v = 0; v < p->n_values; v++) {
        /* a value with windows may not be read with both labels */
        if (windows[v] && read[v] == 3) return false;
        if (!(read[v] & ~(1u << written[v]))) continue;
        *cols += p->value[v].cols;
        ++*n;
    }
    return true;
}

static void fewest(const struct program *p, bool alike, int64_t *cols, int *n)
{
    *cols = INT64_MAX;
    *n = 0;
    for (unsigned labels = 0; labels < 1u << p->n_ops; labels++) {
        int64_t c;
        int k;
        if (alike && labels && labels != (1u << p->n_ops) - 1) continue;
        if (!labelled(p, labels, &c, &k)) continue;
        if (c > *cols || (c == *cols && k >= *n)) continue;
        *cols = c;
        *n = k;
    }
}

static void compare(const struct program *written, enum spread_stage stage, int at)
{
    static struct program p;
    int64_t want_cols, cols = 0;
    int want, n = 0;
    fewest(written, stage == SPREAD_SECTION, &want_cols, &want);
    /* no labelling is possible, because the section has one label and needs both */
    if (want_cols == INT64_MAX) return;
    p = *written;
    prog_spread(&p, stage);
    check_rows(&p);
    for (int i = 0; i < p.n_ops; i++) {
        if (p.op[i].kind != OP_SWITCH) continue;
        cols += p.value[p.op[i].in[0]].cols;
        n++;
    }
    CHECK_MSG(cols == want_cols && n == want,
              "section %d: %d switches of %lld columns, want %d, %lld", at, n, (long long)cols,
              want, (long long)want_cols);
    CHECK(p.n_ops == written->n_ops + n && p.weights_size == written->weights_size);
}

static void test_random(void)
{
    static struct program p;
    uint32_t seed = 5;
    int n_alike = 0;
    for (int i = 0; i < 1500; i++) {
        draw_section(&seed, &p);
        compare(&p, SPREAD_OPERATIONS, i);
        int64_t cols;
        int n;
        fewest(&p, true, &cols, &n);
        n_alike += cols != INT64_MAX;
        compare(&p, SPREAD_SECTION, i);
    }
    CHECK(n_alike > 300);
}

int main(void)
{
    RUN(test_families);
    RUN(test_random);
    return test_done("spread");
}
