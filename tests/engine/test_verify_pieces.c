/* test_verify_pieces.c: checks verify jobs with long tensors. Verify gathers and compares tensors
 * in pieces of 65,536 elements, and the tensors of this test are longer. They also have more bytes
 * than stages send at a time. The text has only the last ids of the vocabulary, so only the third
 * piece of the embedding's gradient is not zero. */
#include "api/core/log.h"
#include "tests/lib/verify.h"

/* 153,600 elements, of which the ids used begin at element 134,400 */
enum { VOCAB = 3200, FIRST_ID = 2800 };

struct product {
    const char *name;
    int sp, tp, zero, tied, pp;
};

static const struct product products[] = {
    {"two ranks", 2, 1, 0, 0, 1},
    {"two ranks, tied", 2, 1, 0, 1, 1},
    {"two ranks, zero 3", 2, 1, 3, 0, 1},
    {"two parts of each layer", 1, 2, 0, 0, 1}, /* each rank has 76,800 elements */
    {"two parts of each layer, tied", 1, 2, 0, 1, 1},
    {"two stages", 1, 1, 0, 0, 2},
    /* the 524,288 bytes of a piece come from both parts */
    {"two stages of two parts", 1, 2, 0, 0, 2},
};

static void write_ids(void)
{
    char path[128], text[4096];
    struct err e = {0};
    size_t n = 0;
    for (int doc = 0; doc < 4; doc++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"input_ids\":[");
        for (int i = 0; i < 60; i++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? "," : "",
                                  FIRST_ID + (doc * 131 + i * i * 7) % (VOCAB - FIRST_ID));
        n += (size_t)snprintf(text + n, sizeof text - n, "]}\n");
    }
    snprintf(path, sizeof path, "%s/ids.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, n, &e), "%s", e.text);
}

static void set(struct trial *t, const struct product *x, enum precision_id precision)
{
    static struct way w;
    struct err e = {0};
    w = ways[WAY_ZIGZAG];
    w.text = "ids";
    w.shape.vocab = VOCAB;
    w.shape.tied = x->tied;
    w.shape.ffn_width = 48; /* a multiple of two */
    trial_set(t, &w, x->sp, 96, precision);
    t->spec.resources.ranks = x->sp * x->tp * x->pp;
    t->spec.parallel.sp = x->sp;
    t->spec.parallel.tp = x->tp;
    t->spec.parallel.pp = x->pp;
    t->spec.parallel.zero = x->zero;
    if (x->sp == 1) t->spec.parallel.layout = LAYOUT_AUTO;
    CHECK_MSG(!family_check(&t->spec, &e), "%s: %s: %s", x->name, e.field, e.text);
}

/* Checks that the gradient of the embedding is the same on the ranks and in the reference, and is
 * not zero. */
static void check_embedding(const struct verify *v, const char *name)
{
    for (int i = 0; i < v->n_rows; i++) {
        const struct verify_row *r = &v->row[i];
        if (!strstr(r->name, "embed_tokens")) continue;
        CHECK_MSG(r->norm_1 > 0 && fabs(r->norm_p / r->norm_1 - 1) < 1e-2 && r->cosine > 0.999,
                  "%s: %s: norms %g and %g, cosine %g", name, r->name, r->norm_1, r->norm_p,
                  r->cosine);
        return;
    }
    CHECK_MSG(false, "%s: no embedding", name);
}

static void test_equal(void)
{
    static struct trial t;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
            set(&t, &products[i], (enum precision_id)p);
            trial_run(&t);
            CHECK_MSG(t.out.equal && t.out.ledger_equal && t.out.targets_1 > 0,
                      "%s, precision %d: %s", products[i].name, p, t.sentence.text);
            check_embedding(&t.out, products[i].name);
            verify_fini(&t.out);
        }
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify_pieces");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify_pieces.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_ids();
    RUN(test_equal);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify_pieces");
}
