/* kern_transfer.h: checks the operations that ranks need from a device with memory of its own:
 * transfers, access to the memory of another process, and waits that end even if the device has
 * stopped. */
#ifndef SEQD_TESTS_KERN_TRANSFER_H
#define SEQD_TESTS_KERN_TRANSFER_H

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include "tests/lib/kern.h"

#define SHARED_N 1000 /* floats */

/* Opens a device without scratch memory, because no check in this file needs it. */
static struct be *open_bare(const char *device, struct err *e)
{
    return be_open(&(struct be_options){.device = device, .n_threads = 1, .scratch_later = true},
                   e);
}

/* Returns how many of the shared floats differ from `want`. Each of the two processes that share
 * the memory must see what its peer writes. */
static int64_t check_shared_bad(struct be *b, const float *p, float want)
{
    float got[SHARED_N];
    int64_t n_bad = 0;
    b->ops->download(b, got, p, sizeof got);
    for (int i = 0; i < SHARED_N; i++) n_bad += got[i] != want;
    return n_bad;
}

static void check_share_here(float *p)
{
    struct err e;
    struct be_handle h;
    CHECK_MSG(be->ops->share(be, p, &h, &e) == 0, "%s", e.text);
    float *there = be_other->ops->attach(be_other, &h, &e);
    CHECK(there);
    if (!there) return;
    CHECK(check_shared_bad(be_other, there, 1.5f) == 0);
    be_other->ops->fill(be_other, there, SHARED_N, 2.5f);
    CHECK(be_other->ops->sync(be_other, &e) == 0);
    be_other->ops->detach(be_other, there);
    CHECK(check_shared_bad(be, p, 2.5f) == 0);
}

/* Starts another process, and passes the memory's handle to it as an argument. check_share_peer
 * reads the argument in that process. */
static void check_share_there(const char *device, float *p)
{
    extern char **environ;
    struct err e;
    struct be_handle h;
    char text[2 * sizeof h + 1], name[32];
    int status = -1;
    pid_t pid;
    CHECK(be->ops->share(be, p, &h, &e) == 0);
    CHECK(be->ops->sync(be, &e) == 0);
    for (size_t i = 0; i < sizeof h; i++) snprintf(text + 2 * i, 3, "%02x", h.bytes[i]);
    snprintf(name, sizeof name, "%s", device);
    char *argv[] = {"check_kernels", "peer", name, text, NULL};
    CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other process: %d", status);
    CHECK(check_shared_bad(be, p, 3.5f) == 0);
}

/* Runs in the process that check_share_there starts. The exit status tells which step has
 * failed. */
static int check_share_peer(const char *device, const char *text)
{
    struct err e;
    struct be_handle h;
    struct be *b = open_bare(device, &e);
    if (!b || strlen(text) != 2 * sizeof h) return 1;
    for (size_t i = 0; i < sizeof h; i++) sscanf(text + 2 * i, "%2hhx", &h.bytes[i]);
    float *p = b->ops->attach(b, &h, &e);
    if (!p) fprintf(stderr, "%s\n", e.text);
    if (!p) return 2;
    if (check_shared_bad(b, p, 2.5f)) return 3;
    b->ops->fill(b, p, SHARED_N, 3.5f);
    if (b->ops->sync(b, &e)) return 4;
    b->ops->detach(b, p);
    be_close(b);
    return 0;
}

/* Checks uploads that are larger than any staging buffer. Also checks uploads from memory that is
 * overwritten immediately after the call. */
static void check_transfer_sizes(void)
{
    static const int64_t sizes[] = {0, 1, 1 << 20, (1 << 20) + 1, 5000003, 40000000};
    struct err e;
    const int64_t most = 40000000;
    char *p = be->ops->alloc(be, most, &e), *mine = malloc((size_t)most), *got = calloc(1, most);
    CHECK(p && mine && got);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint64_t seed = s, z = 0;
        for (int64_t i = 0; i < sizes[s]; i++) {
            if (i % 8 == 0) z = box_rand(&seed);
            mine[i] = (char)(z >> i % 8 * 8);
        }
        be->ops->upload(be, p, mine, sizes[s]);
        memset(mine, 0, (size_t)sizes[s]);
        be->ops->download(be, got, p, sizes[s]);
        int64_t n_bad = 0;
        seed = s;
        for (int64_t i = 0; i < sizes[s]; i++) {
            if (i % 8 == 0) z = box_rand(&seed);
            n_bad += got[i] != (char)(z >> i % 8 * 8);
        }
        CHECK_MSG(n_bad == 0, "%lld of %lld bytes", (long long)n_bad, (long long)sizes[s]);
    }
    /* starts more small uploads than can be in progress at once */
    for (int32_t i = 0; i < 3000; i++) be->ops->upload(be, p + 4 * i, &i, 4);
    be->ops->download(be, got, p, 3000 * 4);
    int64_t n_bad = 0;
    for (int32_t i = 0; i < 3000; i++) n_bad += memcmp(got + 4 * i, &i, 4) != 0;
    CHECK(n_bad == 0 && be->ops->sync(be, &e) == 0);
    be->ops->free(be, p, most);
    free(mine), free(got);
}

/* ---- waits ----------------------------------------------------------------------------------- */

static struct {
    void (*stall)(bool);
    int asked, patience;
} watching;

/* Counts its calls. Call number `patience` ends the wait with an error, or lets the device
 * continue. */
static int check_watch(void *arg, struct err *e)
{
    const bool *goes_on = arg;
    if (++watching.asked < watching.patience) return 0;
    if (!*goes_on) return err_set(e, ERR_PEER, "rank 3 is gone");
    watching.stall(false);
    return 0;
}

/* Checks that waits for a stopped device end. Only the emulated device can be told to stop. */
static void check_watch_ends(const char *device, const char *library)
{
    void *dl = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    watching.stall = dl ? (void (*)(bool))dlsym(dl, "emu_stall") : NULL;
    if (!watching.stall) return;
    for (int on = 0; on < 4; on++) {
        struct err e = {0};
        bool goes_on = on < 2;
        float x[2] = {1, 2}, got[2] = {0};
        struct be *b = open_bare(device, &e);
        float *p = b->ops->alloc(b, sizeof x, &e);
        b->ops->upload(b, p, x, sizeof x);
        b->watch = check_watch;
        b->watch_arg = &goes_on;
        watching.asked = 0;
        watching.patience = 3;
        watching.stall(true);
        if (on % 2) b->ops->download(b, got, p, sizeof got);
        const int rc = b->ops->sync(b, &e);
        watching.stall(false);
        CHECK(watching.asked == 3);
        CHECK(goes_on ? rc == 0 : rc == -1 && e.code == ERR_PEER && !!strstr(e.text, "rank 3"));
        CHECK(on != 1 || !memcmp(got, x, sizeof x));
        /* the next wait returns the same result without waiting */
        CHECK(b->ops->sync(b, &e) == rc && watching.asked == 3);
        b->ops->free(b, p, sizeof x);
        be_close(b);
    }
}

/* Checks a kernel launch that the device refuses. The error that sync returns must name the
 * kernel. */
static void check_refused(const char *device)
{
    struct err e = {0};
    struct be *b = open_bare(device, &e);
    float *p = b->ops->alloc(b, 64, &e);
    const struct tensor rows = {p, (int64_t)1 << 33, 1, 1, DT_F32};
    b->ops->norm_fwd(
        b, &(struct norm_fwd_args){.x = rows, .y = rows, .groups = 1, .rstd = p, .rms = true});
    CHECK(b->ops->sync(b, &e) == -1 && e.code == ERR_DEVICE);
    CHECK_MSG(strstr(e.text, "norm_fwd_kernel") && strstr(e.text, b->name), "%s", e.text);
    b->ops->free(b, p, 64);
    be_close(b);
}

/* Checks copies to the host's memory and back that run at the same time as other operations. An
 * operation that depends on a copy waits only for that copy's mark. */
static void check_beside(void)
{
    enum { SIZE = 64 * 1024, N = SIZE / 4 };
    struct err e;
    float *host = aligned_alloc(4096, 2 * SIZE), *there = be->ops->alloc(be, SIZE, &e);
    if (!host || !there) abort();
    memset(host, 0, 2 * SIZE);
    CHECK_MSG(!be->ops->pin(be, host, 2 * SIZE, &e), "%s", e.text);
    be->ops->fill(be, there, N, 2.5f);
    be->ops->copy_beside(be, host, there, SIZE, true, 0);
    be->ops->copy_await(be, 0);
    /* this operation must run after the copy has read the old values */
    be->ops->fill(be, there, N, 1.0f);
    CHECK(be->ops->sync(be, &e) == 0 && host[0] == 2.5f && host[N - 1] == 2.5f);
    host[N - 1] = 7;
    be->ops->copy_beside(be, there, host, SIZE, false, BE_COPIES - 1);
    be->ops->copy_await(be, BE_COPIES - 1);
    float back[2];
    be->ops->download(be, back, there + N - 2, 8);
    CHECK(back[0] == 2.5f && back[1] == 7);
    /* a copy from the host must come after a copy to the host that was asked for before it */
    be->ops->copy_beside(be, host, there, SIZE, true, 0);
    be->ops->copy_beside(be, there, host + N, SIZE, false, 1);
    be->ops->copy_await(be, 1);
    be->ops->download(be, back, there + N - 2, 8);
    CHECK(be->ops->sync(be, &e) == 0 && back[0] == 0 && back[1] == 0 && host[N - 1] == 7);
    be->ops->unpin(be, host);
    be->ops->free(be, there, SIZE);
    free(host);
}

static void check_transfers(void)
{
    struct err e;
    const char *device = be->ops->name;
    if (!be->own_memory) {
        CHECK(!be->ops->share && !be->ops->attach && !be->ops->detach && !be->ops->transfer_end);
        CHECK(!be->ops->pin && !be->ops->unpin && !be->ops->copy_beside && !be->ops->copy_await);
        return;
    }
    float *p = be->ops->alloc(be, SHARED_N * 4, &e);
    be->ops->transfer_begin(be);
    be->ops->transfer_end(be, BE_MARKS - 1);
    be->ops->transfer_await(be, BE_MARKS - 1);
    be->ops->fill(be, p, SHARED_N, 1.5f);
    CHECK(be->ops->sync(be, &e) == 0);
    CHECK(be->ops->transfer_passed(be, BE_MARKS - 1));
    check_share_here(p);
    check_share_there(device, p);
    be->ops->free(be, p, SHARED_N * 4);
    check_beside();
    check_transfer_sizes();
    check_refused(device);
    check_watch_ends(device, "libkernels_emulated.so");
}

#endif
