/* test_embed_wide.c: checks a model with more than 64 heads, whose vectors have 1,056 columns.
 * Ranks sum only VOLUME_SMALL_N columns at a time. P ranks must give the same result as one rank,
 * on which nothing is summed over ranks. */
#include <math.h>
#include <stdlib.h>
#include "api/core/log.h"
#include "tests/lib/reading.h"
#include "worker/plan/volume.h"

enum { DOCS = 3, C = 1056, HEADS = 66 };
static char scratch[64];

static void run(int P, int pooling, float out[DOCS][C])
{
    static struct reading_embed j;
    char path[128];
    size_t size;
    j.parent = scratch;
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    snprintf(j.dir, sizeof j.dir, "%s/job%d", scratch, P);
    reading_spec(&j.spec, JOB_EMBED, scratch, path, P, 40);
    struct model_shape *m = &j.spec.model.shape;
    m->n_layers = 1, m->width = C, m->n_heads = m->n_kv_heads = HEADS, m->head_dim = C / HEADS;
    j.spec.embed.pooling = pooling;
    reading_prepare(&j.spec, scratch, j.id);
    reading_run(&j.spec, P, reading_embed, &j);
    CHECK_MSG(j.out.ledger_equal && j.out.width == C, "P %d", P);
    char *npy = reading_artifact(j.dir, "embeddings.npy", &size);
    CHECK(size == 128 + DOCS * C * sizeof(float));
    if (size == 128 + DOCS * C * sizeof(float)) memcpy(out, npy + 128, size - 128);
    free(npy);
}

static void test_wide(void)
{
    static float one[DOCS][C], many[DOCS][C];
    static_assert(C > 2 * VOLUME_SMALL_N, "three sums");
    for (int pooling = POOLING_LAST; pooling <= POOLING_MEAN; pooling++) {
        run(1, pooling, one);
        for (int P = 2; P <= 3; P++) {
            double most = 0, worst = 0;
            run(P, pooling, many);
            for (int i = 0; i < DOCS; i++)
                for (int c = 0; c < C; c++) {
                    most = fmax(most, fabs((double)one[i][c]));
                    worst = fmax(worst, fabs((double)many[i][c] - (double)one[i][c]));
                }
            CHECK_MSG(most > 0 && worst <= 1e-5 * most, "pooling %d P %d: %g of %g", pooling, P,
                      worst, most);
        }
    }
}

int main(void)
{
    static const char text[] = "{\"text\":\"hello\"}\n{\"text\":\"the quick brown fox jumps\"}\n"
                               "{\"text\":\"a little more than 32 letters of it\"}\n";
    char path[128];
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_embed_wide");
    snprintf(scratch, sizeof scratch, "/tmp/test_embed_wide.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, sizeof text - 1, &e), "%s", e.text);
    RUN(test_wide);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("embed_wide");
}
