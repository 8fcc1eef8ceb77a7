/* Checks event files of TensorBoard. The test has its own reader, which checks every byte. Tests
 * files that are truncated at any place, and a full disk. Also checks that writing allocates no
 * memory. */
#include "worker/rank/tfevents.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/lib/tfevents.h"

static char dir[64], path[128];
static struct err e;
static struct tfevents f;
static struct tfe_event ev[TFE_EVENTS];

static const double wall = 1790000000.25;

static void begin(int64_t step)
{
    static int n;
    snprintf(path, sizeof path, "%s/%d", dir, n++);
    e = (struct err){0};
    tfevents_init(&f, path, wall);
    CHECK(tfevents_start(&f, wall, step));
}

static void flush(void)
{
    CHECK_MSG(!tfevents_flush(&f, false, &e), "%s", e.text);
    CHECK(!f.n);
}

static const double numbers[] = {0,         1,        -1.5,     3.4028234663852886e38, 1e-45, 0.1,
                                 -INFINITY, INFINITY, 1234567.8};
#define N_NUMBERS ((int)(sizeof numbers / sizeof *numbers))

static bool put(int64_t step, int n)
{
    static const char *const tags[] = {"train/loss", "a", "", "thirty-one bytes, which is all."};
    struct tfevents_scalar s[TFEVENTS_SCALARS];
    for (int i = 0; i < n; i++)
        s[i] = (struct tfevents_scalar){tags[i % 4], numbers[(step + i) % N_NUMBERS]};
    return tfevents_scalars(&f, wall + (double)step, step, s, n);
}

static void check_put(const struct tfe_event *v, int64_t step, int n)
{
    CHECK(v->step == step && v->wall_s == wall + (double)step && v->n == n && !v->status);
    for (int i = 0; i < n && i < v->n; i++)
        CHECK_MSG(v->value[i] == (float)numbers[(step + i) % N_NUMBERS], "scalar %d: %g", i,
                  (double)v->value[i]);
}

static void test_crc(void)
{
    /* the check value of RFC 3720 */
    CHECK(tfe_crc((const unsigned char *)"123456789", 9) == 0xe3069283);
    CHECK(tfe_crc((const unsigned char *)"", 0) == 0);
}

/* Checks records with steps of every length in bytes, with every number of scalars, and with the
 * longest tag. Also checks the record of the version. */
static void test_records(void)
{
    static const int64_t steps[] = {0, 1, 127, 128, 16383, 16384, 1000000000, INT64_MAX - 16};
    size_t left = 1;
    int k = 2;
    begin(7);
    for (int i = 0; i < 8; i++) CHECK(put(steps[i], i));
    for (int n = 0; n <= TFEVENTS_SCALARS; n++) CHECK(put(100 + n, n));
    CHECK(access(path, F_OK)); /* the first flush makes the file */
    flush();
    CHECK(tfevents_start(&f, wall + 1, 42));
    CHECK(!tfevents_flush(&f, true, &e) && !f.n);
    CHECK(!tfevents_flush(&f, true, &e)); /* no bytes wait */
    const int n_events = tfe_read(path, ev, &left);
    CHECK_MSG(n_events == 2 + 8 + TFEVENTS_SCALARS + 1 + 1 && left == 0, "%d, %zu left", n_events,
              left);
    if (n_events < 0) return;
    CHECK_STR(ev[0].version, "brain.Event:2");
    CHECK(ev[0].wall_s == wall && ev[0].step == 0 && !ev[0].n && !ev[0].status);
    CHECK(ev[1].status == 1 && ev[1].step == 7 && ev[1].wall_s == wall && !ev[1].n);
    for (int i = 0; i < 8; i++) check_put(&ev[k++], steps[i], i);
    for (int n = 0; n <= TFEVENTS_SCALARS; n++) check_put(&ev[k++], 100 + n, n);
    CHECK_STR(ev[k - 1].tag[3], "thirty-one bytes, which is all.");
    CHECK_STR(ev[k - 1].tag[2], "");
    CHECK(ev[k].status == 1 && ev[k].step == 42 && ev[k].wall_s == wall + 1);
}

static void test_no_number(void)
{
    size_t left;
    const struct tfevents_scalar s = {"train/loss", NAN};
    begin(1);
    CHECK(tfevents_scalars(&f, wall, 1, &s, 1));
    flush();
    CHECK(tfe_read(path, ev, &left) == 3 && ev[2].n == 1 && isnan(ev[2].value[0]));
}

/* Checks a full buffer. No byte of a further record may be accepted. After a flush there is room
 * again. */
static void test_room(void)
{
    size_t left;
    int n = 2, k = 0;
    begin(1);
    while (put(n, TFEVENTS_SCALARS)) n++;
    CHECK(n > 100 && f.n > TFEVENTS_BUF - 1024 && !put(n, TFEVENTS_SCALARS));
    while (put(n + k, 0)) k++; /* fills the rest with smaller records */
    CHECK(!tfevents_start(&f, wall, 1) && f.n <= TFEVENTS_BUF);
    flush();
    CHECK(put(n + k, 3));
    flush();
    CHECK(tfe_read(path, ev, &left) == n + k + 1 && left == 0 && ev[n + k].n == 3);
}

/* Checks a file that is removed while it is written. No new file may be made that begins in the
 * middle of the records. */
static void test_gone(void)
{
    begin(1);
    flush();
    CHECK(!unlink(path) && put(1, 1));
    CHECK(tfevents_flush(&f, false, &e) && e.code == ERR_NOT_FOUND && strstr(e.text, path));
    CHECK(access(path, F_OK) && f.n);
    tfevents_init(&f, "/nowhere/x", wall);
    CHECK(tfevents_flush(&f, false, &e) && strstr(e.text, "/nowhere/x"));
}

/* Checks files that are truncated to any length, as after a kill. All complete records must be
 * read, and no byte of the incomplete one. Damage of any other kind must be found. */
static void test_cut(void)
{
    size_t size, left;
    begin(1);
    for (int i = 1; i <= 5; i++) CHECK(put(i, i));
    flush();
    char *bytes = file_read(path, 1 << 20, &size, &e);
    const int n = bytes ? tfe_parse((unsigned char *)bytes, size, ev, &left) : -1;
    CHECK(n == 7 && (int64_t)size == f.size);
    size_t end[8] = {0};
    for (int i = 0; i < n; i++) end[i + 1] = end[i] + ev[i].size;
    for (size_t cut = 0; bytes && n == 7 && cut < size; cut++) {
        int whole = 0;
        while (end[whole + 1] <= cut) whole++;
        CHECK(tfe_parse((unsigned char *)bytes, cut, ev, &left) == whole);
        CHECK(left == cut - end[whole]);
        bytes[cut] ^= 0x10;
        CHECK(tfe_parse((unsigned char *)bytes, size, ev, &left) < 0);
        bytes[cut] ^= 0x10;
    }
    free(bytes);
}

/* Checks a disk that accepts only n of the waiting bytes, for every n. The file must still end
 * after a complete record. When there is room again, it must get all bytes. */
static void test_full(void)
{
    struct rlimit before, limit;
    struct stat st;
    size_t left;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(!getrlimit(RLIMIT_FSIZE, &before));
    limit = before;
    for (int first = 0; first < 2; first++) {
        int64_t room = 0, size = 1;
        for (; room < size; room++) {
            begin(1);
            CHECK(put(1, 4));
            if (!first) flush();
            const int64_t base = f.size;
            CHECK(put(2, 4));
            size = (int64_t)f.n;
            limit.rlim_cur = (rlim_t)(base + room);
            CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
            CHECK(tfevents_flush(&f, false, &e) && e.code == ERR_TOO_LARGE);
            CHECK(strstr(e.text, path) && strstr(e.text, "RLIMIT_FSIZE"));
            CHECK(f.size == base && (int64_t)f.n == size);
            CHECK(first ? stat(path, &st) : !stat(path, &st) && st.st_size == base);
            CHECK(put(3, 1));
            CHECK(!setrlimit(RLIMIT_FSIZE, &before));
            flush();
            CHECK(tfe_read(path, ev, &left) == 5 && left == 0);
            for (int i = 1; i <= 3; i++) check_put(&ev[i + 1], i, i < 3 ? 4 : 1);
        }
        CHECK(room > 100);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

#if !SANITIZED /* sanitizers have a malloc of their own */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *malloc(size_t);
void *calloc(size_t, size_t);
void *realloc(void *, size_t);
static int n_allocations;

void *malloc(size_t n)
{
    n_allocations++;
    return __libc_malloc(n);
}

void *calloc(size_t a, size_t b)
{
    n_allocations++;
    return __libc_calloc(a, b);
}

void *realloc(void *p, size_t n)
{
    n_allocations++;
    return __libc_realloc(p, n);
}

static void test_no_allocation(void)
{
    free(malloc(1));
    CHECK(n_allocations > 0); /* the hook counts */
    n_allocations = 0;
    begin(1);
    for (int i = 0; i < 100; i++) CHECK(put(i, TFEVENTS_SCALARS));
    CHECK(!tfevents_flush(&f, true, &e) && tfevents_start(&f, wall, 3));
    CHECK(!tfevents_flush(&f, true, &e));
    CHECK_MSG(n_allocations == 0, "%d allocations", n_allocations);
}
#endif

int main(void)
{
    snprintf(dir, sizeof dir, "/tmp/test_tfevents.XXXXXX");
    if (!mkdtemp(dir)) return 1;
    RUN(test_crc);
    RUN(test_records);
    RUN(test_no_number);
    RUN(test_room);
    RUN(test_gone);
    RUN(test_cut);
    RUN(test_full);
#if !SANITIZED
    RUN(test_no_allocation);
#endif
    if (file_remove(dir, &e)) printf("  %s\n", e.text);
    return test_done("tfevents");
}
