/* confine.c: lists the paths and ports of a rank for Landlock, and its sockets for the filter. */
#include "worker/gang/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/sandbox.h"

enum { SPARE_FD = 10 }; /* larger than every descriptor number that a rank inherits */

static bool on_gpu(const struct gang_start *s)
{
    const char *device = spec_text(&s->spec, s->spec.resources.device);
    return s->task == TASK_RUN &&
           (*s->gpus[0] || !strcmp(device, "cuda") || !strcmp(device, "emulated"));
}

/* Tells whether ranks of the attempt talk over TCP. */
static bool has_tcp(const struct gang_start *s)
{
    return s->task == TASK_RUN && s->n_ranks > 1 &&
           (s->n_local < s->n_ranks || s->spec.parallel.transport == TRANSPORT_TCP);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Allows the roots, and the grants, which may lie in private directories. */
static int allow_roots(const struct landlock *l, const struct gang_start *s, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < s->n_roots && !rc; i++)
        rc = sandbox_allow_root(l, s->roots[i], s->state_dir, LANDLOCK_READ, e);
    for (int i = 0; i < s->n_writable && !rc; i++)
        rc = sandbox_allow_root(l, s->writable[i], s->state_dir, LANDLOCK_WRITE, e);
    for (int i = 0; i < s->n_grants && !rc; i++)
        rc = landlock_allow(l, s->grants[i], LANDLOCK_READ, e);
    return rc;
}

/* Allows the job's directory, and the prepared data. Their id is known to a preparation only when
 * it has read the sources, so it may use the directories of all of them; so may a rank on a node
 * where the data of its job are not there yet. */
static int allow_own(const struct landlock *l, const struct gang_start *s, struct err *e)
{
    char data[FILE_PATH_SIZE];
    if (landlock_allow(l, s->job_dir, LANDLOCK_WRITE, e)) return -1;
    if (!*s->prepared_id && s->task == TASK_RUN) return 0;
    if (file_join(data, e, "%s/%s", s->prepared_dir, s->prepared_id) < 0) return -1;
    if (*s->prepared_id && file_exists(data)) return landlock_allow(l, data, LANDLOCK_READ, e);
    return landlock_allow(l, s->prepared_dir, LANDLOCK_WRITE, e);
}

static int allow_gpu(const struct landlock *l, struct err *e)
{
    char cache[FILE_PATH_SIZE];
    const char *home = getenv("HOME");
    if (home && file_join(cache, NULL, "%s/.nv", home) >= 0 &&
        landlock_allow(l, cache, LANDLOCK_WRITE, e))
        return -1;
    if (landlock_allow(l, "/dev/shm", LANDLOCK_WRITE, e)) return -1;
    return landlock_allow(l, "/dev", LANDLOCK_DEVICE, e);
}

static int fill(struct confine *c, const struct gang_start *s, struct err *e)
{
    const bool gpu = on_gpu(s), tcp = has_tcp(s);
    const struct landlock_options o = {
        .files = true, .bind = !gpu, .connect = !gpu && !tcp, .signals = true, .abstract = !gpu};
    if (landlock_open(&c->domain, &o, e)) return -1;
    if (!gpu && tcp && landlock_allow_bind(&c->domain, 0, e)) return -1;
    if (sandbox_allow_system(&c->domain, s->seqrank, e) || allow_roots(&c->domain, s, e) ||
        allow_own(&c->domain, s, e))
        return -1;
    c->calls = (struct seccomp_options){.processes = gpu, .tcp = tcp, .fabric = gpu};
    c->filtered = seccomp_works();
    c->ports = tcp && !gpu;
    return gpu ? allow_gpu(&c->domain, e) : 0;
}

int confine_open(struct confine *c, const struct gang_start *s, struct err *e)
{
    char lacks[SANDBOX_TEXT];
    if (s->sandbox == SANDBOX_OFF || (s->sandbox == SANDBOX_AUTO && on_gpu(s))) return 0;
    if (s->sandbox == SANDBOX_REQUIRE && sandbox_lacks(lacks, sizeof lacks))
        return err_set(e, ERR_UNSUPPORTED, "--sandbox require: %s", lacks);
    if (fill(c, s, e)) return -1;
    if (c->domain.fd < 0) return 0;
    const int fd = fcntl(c->domain.fd, F_DUPFD_CLOEXEC, SPARE_FD);
    if (fd < 0) return err_errno(e, "duplicate the rules of Landlock");
    close(c->domain.fd);
    c->domain.fd = fd;
    return 0;
}

int confine_enter(const struct confine *c)
{
    if (c->domain.fd < 0 && !c->filtered) return 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || landlock_enter(&c->domain)) return -1;
    return c->filtered ? seccomp_enter(&c->calls) : 0;
}

void confine_close(struct confine *c)
{
    landlock_close(&c->domain);
}
