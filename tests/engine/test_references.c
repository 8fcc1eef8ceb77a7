/* test_references: writes and reads the file of references. Damages each byte of it, and cuts it
 * at each length. */
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "worker/ckpt/references.h"

enum { N = 5, HEADER = 256, SIZE = HEADER + 8 * N };

static char dir[64];
static struct err e;

static const char *path(void)
{
    static char p[96];
    snprintf(p, sizeof p, "%s/" REFERENCES_FILE, dir);
    return p;
}

static struct references of(double *x, int64_t n)
{
    struct references r = {.n = n, .x = x};
    strcpy(r.data_id, "0123456789abcdef0123456789abcdef");
    return r;
}

static void test_kept(void)
{
    double x[N] = {-1.5, 0, -1e-300, -700.25, -3}, got[N] = {0};
    struct references in = of(x, N), out = of(got, N);
    CHECK(references_read(dir, &out, true, &e) == 0);
    CHECK_MSG(!references_write(dir, &in, &e), "%s", e.text);
    CHECK(references_read(dir, &out, true, &e) == 1 && !memcmp(got, x, sizeof x));
    out.data_id[0] = 'f'; /* other data */
    CHECK(references_read(dir, &out, true, &e) == 0);
    out.data_id[0] = '0';
    CHECK(references_read(dir, &out, false, &e) == 0); /* the base is not known */
    strcpy(in.base, "0b");
    strcpy(out.base, "0b");
    CHECK(!references_write(dir, &in, &e) && references_read(dir, &out, false, &e) == 1);
    strcpy(out.base, "0c");
    CHECK(references_read(dir, &out, false, &e) == 0 && references_read(dir, &out, true, &e) == 1);
    x[2] = -8;
    CHECK(!references_write(dir, &in, &e));
    out = of(got, N);
    CHECK(references_read(dir, &out, true, &e) == 1 && got[2] == -8);
}

/* Damage must be found, unless it makes the data's id another one. */
static void test_damaged(void)
{
    size_t size;
    char *all = file_read(path(), 4096, &size, &e);
    double got[N];
    const struct references out = of(got, N);
    CHECK(all && size == SIZE);
    for (size_t i = 0; i < size; i++) {
        all[i] ^= 1;
        CHECK(!file_write(path(), all, size, &e));
        const int rc = references_read(dir, &out, true, &e);
        /* the digest covers the numbers alone; the base was not asked for */
        const bool id = i >= 32 && i < 112, pad = (i > 32 + 32 && i < 184) || i > 184 + 64;
        CHECK_MSG(rc == -1  ? e.code == ERR_CORRUPT
                  : rc == 0 ? id
                            : i < HEADER && pad,
                  "byte %zu: %d", i, rc);
        all[i] ^= 1;
    }
    for (size_t n = 0; n < size; n++) {
        CHECK(!file_write(path(), all, n, &e));
        CHECK_MSG(references_read(dir, &out, true, &e) == -1 && e.code == ERR_CORRUPT, "%zu bytes",
                  n);
    }
    CHECK(!file_write(path(), all, size, &e) && references_read(dir, &out, true, &e) == 1);
    struct references fewer = of(got, N - 1);
    CHECK(references_read(dir, &fewer, true, &e) == -1 && e.code == ERR_CORRUPT);
    free(all);
}

int main(void)
{
    scratch_dir(dir, sizeof dir, "references");
    RUN(test_kept);
    RUN(test_damaged);
    file_remove(dir, NULL);
    return test_done("references");
}
