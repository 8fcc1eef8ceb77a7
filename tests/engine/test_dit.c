/* Compares diffusion transformers with PyTorch in float64 (tests/lib/dit_golden.h) on any number
 * of ranks. Also checks bits that must not depend on the number of ranks.
 * tests: needs golden */
#include "api/core/file.h"
#include "tests/lib/dit_golden.h"
#include "tests/lib/mutant.h"
#include "worker/family/family.h"

static void test_golden(void)
{
    static const int degrees[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < DIT_NAMES; i++) {
        struct dit_golden g;
        dit_open(&g, dit_names[i]);
        for (int p = 0; p < 5; p++) {
            struct outcome o;
            run(&g, degrees[p], false, 0, &o);
            const struct verdict v = dit_compare(&g, &o);
            CHECK_MSG(dit_holds(&v), "%s P %d: prediction %.3g, loss %.3g, gradient of %s %.3g",
                      dit_names[i], degrees[p], v.prediction, v.loss, v.tensor, v.worst);
            outcome_free(&o);
        }
        dit_close(&g);
    }
}

/* Runs the models as a job does. */
static void test_planned(void)
{
    for (int i = 0; i < DIT_NAMES; i++) {
        struct dit_golden g;
        dit_open(&g, dit_names[i]);
        for (enum recompute_id mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++)
            dit_check_planned(&g, 1, mode);
        dit_check_planned(&g, 2, RECOMPUTE_NONE);
        dit_check_planned(&g, 3, RECOMPUTE_SELECTIVE);
        dit_check_planned(&g, 4, RECOMPUTE_FULL);
        dit_check_planned(&g, 8, RECOMPUTE_NONE);
        for (int P = 1; P <= 4; P++) /* MLPs are computed in pieces of rows */
            dit_check_pieces(&g, P, (enum recompute_id)(RECOMPUTE_NONE + P % 3), 2 + P);
        for (int P = 1; P <= 3; P++)
            dit_check_asked(
                &g, (struct dit_run){.P = P, .recompute = RECOMPUTE_NONE + P % 3, .offload = true});
        dit_close(&g);
    }
}

/* ---- bits, bytes ----------------------------------------------------------------------------- */

static bool same_bits(const struct dit_golden *g, const struct outcome *a, const struct outcome *b)
{
    const int64_t rows = g->grid[0] * g->grid[1] * g->grid[2];
    bool same = !memcmp(a->nll, b->nll, (size_t)rows * 8) &&
                !memcmp(a->prediction, b->prediction,
                        (size_t)(rows * g->places * g->m.out_channels * 4));
    for (int k = 0; k < g->m.n_layers + 2; k++) {
        const struct program *p = section_program(g, k);
        same = same && !memcmp(a->grad[k], b->grad[k], (size_t)p->weights_size * 4);
    }
    return same;
}

static void run_bits(const struct dit_golden *g, int P, bool planned, struct outcome *o)
{
    struct dit_run r = {.g = g,
                        .P = P,
                        .rank_bits = true,
                        .planned = planned,
                        .recompute = RECOMPUTE_SELECTIVE,
                        .out = o};
    dit_go(&r);
}

/* Checks that under determinism "ranks" 1, 2, 4 and 8 ranks give the same loss, prediction and
 * gradients, bit by bit. 5 frames are divided into chunks of one, so that some ranks have no
 * frame. 15 places are divided into chunks of two. */
static void check_bits(const struct dit_golden *g, bool planned)
{
    struct outcome one;
    run_bits(g, 1, planned, &one);
    const struct verdict v = dit_compare(g, &one);
    CHECK_MSG(dit_holds(&v), "%s: gradient of %s %.3g", g->name, v.tensor, v.worst);
    for (int P = 2; P <= 8; P *= 2) {
        struct outcome o;
        run_bits(g, P, planned, &o);
        CHECK_MSG(same_bits(g, &one, &o), "%s P %d has other bits than one rank", g->name, P);
        outcome_free(&o);
    }
    outcome_free(&one);
}

static void test_rank_bits(void)
{
    for (int i = 0; i < DIT_NAMES; i++) {
        struct dit_golden g;
        dit_open(&g, dit_names[i]);
        check_bits(&g, false);
        check_bits(&g, true);
        dit_close(&g);
    }
}

/* Checks that for each attention along space each rank sent the bytes of two switches forward and
 * two switches backward. */
static void check_bytes(const struct dit_golden *g, int P, bool rank_bits)
{
    const int64_t n[2] = {g->grid[1] * g->grid[2], g->grid[0]}, row = g->m.width * 4;
    const int64_t pairs = g->m.family == FAMILY_STDIT ? g->m.n_layers : g->m.n_layers / 2;
    struct outcome o;
    run(g, P, rank_bits, 0, &o);
    for (int r = 0; r < P; r++) {
        struct comm_count want = {0};
        volume_add(&want, volume_switch(P, r, n, 0, row, rank_bits), 2 * pairs);
        volume_add(&want, volume_switch(P, r, n, 1, row, rank_bits), 2 * pairs);
        CHECK_MSG(!memcmp(&want, &o.count[r], sizeof want),
                  "%s P %d rank %d: %lld bytes, want %lld", g->name, P, r,
                  (long long)o.count[r].bytes_sent, (long long)want.bytes_sent);
    }
    outcome_free(&o);
}

static void test_bytes(void)
{
    for (int i = 0; i < DIT_NAMES; i++) {
        struct dit_golden g;
        dit_open(&g, dit_names[i]);
        check_bytes(&g, 3, false);
        check_bytes(&g, 4, true);
        dit_close(&g);
    }
}

/* ---- mutants --------------------------------------------------------------------------------- */

#ifdef SEQD_MUTANTS
static void test_mutants_are_caught(void)
{
    struct dit_golden g;
    dit_open(&g, "stdit3"); /* 15 places on 2 ranks have a pad, and so do 5 frames on 2 ranks */
    static const int faults[] = {MUTANT_PAD_SEEN, MUTANT_SWITCH_SWAPPED, MUTANT_REPLICATED_ROTATED};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const int m = faults[i];
        struct outcome o;
        run(&g, 2, false, m, &o);
        const struct verdict v = dit_compare(&g, &o);
        mutant_report(m, !dit_holds(&v), "gradients of stdit3 on 2 ranks");
        outcome_free(&o);
    }
    dit_close(&g);
}

/* Checks that an injected fault is found, both at a diffusion step in the middle and at the last
 * one. With this fault, the loss that trains the variance also changes the gradient of the
 * noise. */
static void test_mutants_of_noise(void)
{
    static const char *const names[] = {"latte_noise", "stdit_noise"};
    for (int i = 0; i < 2; i++) {
        struct dit_golden g;
        struct outcome o;
        char by[64];
        dit_open(&g, names[i]);
        run(&g, 2, false, MUTANT_BOUND_LEAKS, &o);
        const struct verdict v = dit_compare(&g, &o);
        snprintf(by, sizeof by, "gradients of %s on 2 ranks", names[i]);
        mutant_report(MUTANT_BOUND_LEAKS, !dit_holds(&v), by);
        outcome_free(&o);
        dit_close(&g);
    }
}
#endif

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Checks the number of weights of the released model, which has 1.2 billion. */
static void test_released(void)
{
    static const char text[] =
        "{\"model_type\":\"STDiT3\",\"hidden_size\":1152,\"depth\":28,\"num_heads\":16,"
        "\"qk_norm\":true,\"patch_size\":[1,2,2],\"caption_channels\":4096,"
        "\"model_max_length\":300,\"class_dropout_prob\":0.1,\"enable_flash_attn\":true}";
    struct model_shape m;
    struct err e = {0};
    struct family *f = column_mem(sizeof *f);
    int64_t n = 0;
    CHECK_MSG(config_parse(text, sizeof text - 1, "config.json", &m, &e) == 0, "%s", e.text);
    CHECK(m.n_layers == 56 && m.head_dim == 72 && m.ffn_width == 4608 && m.out_channels == 8);
    family_write(&m, f);
    for (int l = -1; l <= m.n_layers; l++) {
        const struct program *p = l < 0             ? &f->in
                                  : l == m.n_layers ? &f->out
                                                    : family_layer(f, &m, l);
        for (int i = 0; i < p->n_weights; i++) n += column_count(&p->weight[i]);
    }
    /* The number is computed by hand from the table of tensors. In a block, qkv and proj have 4
     * C^2 + 4 C weights, and cross-attention has the same number. The MLP has 8 C^2 + 5 C, the
     * table 6 C, and two norms have 72 each. */
    const int64_t C = 1152, block = 16 * C * C + 13 * C + 6 * C + 144;
    const int64_t in = 16 * C + C + 2 * (256 * C + C + C * C + C) + 6 * C * C + 6 * C + 300 * 4096 +
                       4096 * C + C + C * C + C;
    CHECK_MSG(n == 56 * block + in + 2 * C + 32 * C + 32, "%lld weights", (long long)n);
    free(f);
}

/* Checks the objective with which a model was trained. Files of other programs may lack the
 * objective. Our files always have it. */
static void test_objective(void)
{
#define LATTE "{\"model_type\":\"Latte\",\"hidden_size\":48,\"depth\":2,\"num_heads\":2"
    static const struct {
        const char *text;
        int want;
    } v[] = {{LATTE "}", OBJECTIVE_AUTO},
             {LATTE ",\"objective\":null}", OBJECTIVE_AUTO},
             {LATTE ",\"objective\":\"iddpm\"}", OBJECTIVE_IDDPM},
             {LATTE ",\"objective\":\"rectified_flow\"}", OBJECTIVE_RECTIFIED_FLOW}};
    char dir[] = "/tmp/test_dit.XXXXXX", text[4096];
    struct model_shape m, back;
    struct err e = {0};
    for (int i = 0; i < 4; i++) {
        CHECK(!config_parse(v[i].text, strlen(v[i].text), "config.json", &m, &e));
        CHECK_MSG((int)m.trained_on == v[i].want, "%s: %d", v[i].text, m.trained_on);
    }
    CHECK(hf_shape_json(&m, text, sizeof text) > 0);
    CHECK_MSG(strstr(text, "\"objective\":\"rectified_flow\""), "%s", text);
    m.trained_on = OBJECTIVE_AUTO;
    CHECK(mkdtemp(dir) && !hf_config_write(dir, &m, DT_F32, NULL, &e));
    CHECK(!config_read_dir(dir, &back, &e) && back.trained_on == OBJECTIVE_RECTIFIED_FLOW);
    /* The model came from a directory without an objective. The job has trained it with one, so
     * the new file has that objective. */
    snprintf(text, sizeof text, "%s/config.json", dir);
    CHECK(!file_write(text, v[0].text, strlen(v[0].text), &e));
    const struct hf_beside b = {.from = dir};
    CHECK_MSG(!hf_config_write(dir, &back, DT_F32, &b, &e), "%s", e.text);
    CHECK(!config_read_dir(dir, &back, &e) && back.trained_on == OBJECTIVE_RECTIFIED_FLOW);
    /* After that, the model is trained with a different objective. */
    back.trained_on = OBJECTIVE_IDDPM;
    CHECK_MSG(!hf_config_write(dir, &back, DT_F32, &b, &e), "%s", e.text);
    CHECK(!config_read_dir(dir, &back, &e) && back.trained_on == OBJECTIVE_IDDPM);
    CHECK(!file_remove(dir, &e));
}

static void refuses(const char *text, const char *word)
{
    struct model_shape m;
    struct err e = {0};
    const int rc = config_parse(text, strlen(text), "config.json", &m, &e);
    CHECK_MSG(rc && strstr(e.text, word), "%s: \"%s\", want %s", text, e.text, word);
}

static void test_refusals(void)
{
#define HEAD "{\"model_type\":\"STDiT3\",\"hidden_size\":48,"
    refuses(HEAD "\"num_heads\":5}", "num_attention_heads");
    refuses(HEAD "\"num_heads\":2,\"patch_size\":[1,0,2]}", "patch_size");
    refuses(HEAD "\"num_heads\":2,\"patch_size\":[1,2,2,2]}", "patch_size");
    refuses(HEAD "\"num_heads\":2,\"patch_size\":\"2\"}", "patch_size");
    refuses(HEAD "\"num_heads\":2,\"depth\":0}", "depth");
    refuses(HEAD "\"num_heads\":2,\"drop_path\":0.1}", "drop_path");
    refuses(HEAD "\"num_heads\":2,\"objective\":\"epsilon\"}", "objective");
    refuses(HEAD "\"num_heads\":2,\"caption_channels\":0}", "caption_channels");
    refuses("{\"model_type\":\"STDiT3\",\"hidden_size\":50,\"num_heads\":5}", "hidden_size");
    refuses("{\"model_type\":\"Latte\",\"hidden_size\":48,\"num_heads\":2,\"depth\":2,"
            "\"patch_size\":[2,2,2]}",
            "patch_t");
#undef HEAD
}

int main(void)
{
#ifdef SEQD_MUTANTS
    RUN(test_mutants_are_caught);
    RUN(test_mutants_of_noise);
#endif
    RUN(test_golden);
    RUN(test_planned);
    RUN(test_rank_bits);
    RUN(test_bytes);
    RUN(test_released);
    RUN(test_objective);
    RUN(test_refusals);
    return test_done("dit");
}
