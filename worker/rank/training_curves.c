/* training_curves.c: writes metrics and evaluations into TensorBoard event files, and lists
 * these files among the job's artifacts. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "worker/rank/training.h"

#define PREFIX "events.out.tfevents." /* TensorBoard finds files by this prefix */
/* DENSE is the number of records between a step that is a power of two and the next power of
 * two. */
#define DENSE    8192
#define FLUSH_US 1000000
/* Largest number of bytes of the host's name that are used in the file's name. A host's name
 * can have 64 bytes. */
#define HOST_MAX 16

/* ---- files ----------------------------------------------------------------------------------- */

static double wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Calls the parameter `found` for every event file among the job's artifacts. Stops at the
 * first call that fails. */
static int each_file(struct training *t,
                     int (*found)(struct training *t, const char *name, void *arg, struct err *e),
                     void *arg, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct dirent *ent;
    int rc = 0;
    if (file_join(path, e, "%s/artifacts", t->r->args->job_dir)) return -1;
    DIR *d = opendir(path);
    while (d && !rc && (ent = readdir(d)))
        if (!strncmp(ent->d_name, PREFIX, sizeof PREFIX - 1) && strlen(ent->d_name) < ARTIFACT_NAME)
            rc = found(t, ent->d_name, arg, e);
    if (d) closedir(d);
    return rc;
}

static int after(struct training *t, const char *name, void *arg, struct err *e)
{
    long long *newest = arg, s;
    if (sscanf(name + sizeof PREFIX - 1, "%lld.", &s) == 1 && s > *newest) *newest = s;
    return 0;
}

/* Chooses a name that sorts after the names of all other event files, even if the clock was set
 * back. TensorBoard reads files in the order of their names. */
void training_curves_open(struct training *t)
{
    char host[HOST_MAX + 1] = "", path[FILE_PATH_SIZE];
    long long newest = 0, now = (long long)wall_s();
    struct curves *c = &t->curves;
    if (!run_first(t->r)) return;
    if (each_file(t, after, &newest, NULL)) return; /* this fails only if the path is too long */
    if (now <= newest) now = newest + 1;
    if (gethostname(host, HOST_MAX) && !*host) snprintf(host, sizeof host, "node");
    for (char *p = host; *p; p++)
        if (!(*p >= '0' && *p <= '9') && !(*p >= 'a' && *p <= 'z') && !(*p >= 'A' && *p <= 'Z'))
            *p = '-';
    snprintf(c->name, sizeof c->name, PREFIX "%lld.%s.%lld", now, host,
             (long long)t->r->args->epoch);
    if (file_join(path, NULL, "%s/artifacts/%s", t->r->args->job_dir, c->name)) {
        c->name[0] = 0;
        return;
    }
    tfevents_init(&c->file, path, wall_s());
    c->start = t->train.step + 1;
}

/* ---- artifacts ------------------------------------------------------------------------------- */

/* Lists a file as an artifact. sha256 is "" if the file is still growing. */
static int send_file(struct training *t, const char *name, int64_t size, const char *sha256,
                     struct err *e)
{
    char json[512];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "name", name);
    jwrite_int(&w, "size", size);
    if (*sha256) jwrite_str(&w, "sha256", sha256);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0)
        return err_set(e, ERR_TOO_LARGE, "the name %s is too long to report", name);
    return link_send_event(t->r->link, EV_ARTIFACT, t->train.step, json, e);
}

/* Lists a file that will not grow any more, and makes it read-only. */
static int finish(struct training *t, const char *name, struct err *e)
{
    struct artifact_done done;
    if (artifact_path(t->r->args->job_dir, name, &done, e) || artifact_describe(&done, e) ||
        send_file(t, name, done.size, done.sha256, e))
        return -1;
    const int fd = open(done.path, O_RDONLY | O_CLOEXEC);
    /* by its descriptor, because the sandbox refuses chmod of a path */
    const int rc = fd < 0 || fchmod(fd, 0400) ? err_errno(e, "chmod %s", done.path) : 0;
    if (fd >= 0) close(fd);
    return rc;
}

/* Finishes a file that an earlier attempt has left unfinished. */
static int finish_left(struct training *t, const char *name, void *arg, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct stat st;
    struct err why = {0};
    if (!strcmp(name, t->curves.name)) return 0;
    if (file_join(path, e, "%s/artifacts/%s", t->r->args->job_dir, name)) return -1;
    if (lstat(path, &st) || !S_ISREG(st.st_mode) || !(st.st_mode & S_IWUSR)) return 0;
    if (finish(t, name, &why)) log_warn("rank.curves", "file=%s reason=\"%s\"", name, why.text);
    return 0;
}

static int list(struct training *t, struct err *e)
{
    struct curves *c = &t->curves;
    char dir[FILE_PATH_SIZE];
    struct err why = {0};
    c->listed = true;
    if (file_join(dir, &why, "%s/artifacts", t->r->args->job_dir) || file_sync_dir(dir, &why))
        log_warn("rank.curves", "reason=\"%s\"", why.text);
    if (each_file(t, finish_left, NULL, e)) return -1;
    return send_file(t, c->name, c->file.size, "", e);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Puts a record into the buffer. If the buffer has no room, the record is lost. This occurs
 * only after the disk has accepted no data for a long time, and a note about this was sent. */
static void put(struct training *t, int64_t step, const struct tfevents_scalar *s, int n)
{
    struct curves *c = &t->curves;
    if (c->start && !tfevents_start(&c->file, wall_s(), c->start)) return;
    c->start = 0;
    c->any |= tfevents_scalars(&c->file, wall_s(), step, s, n);
}

/* Appends the values of pairs of answers to v[n]. Their tags are those of the package trl. */
static int add_pairs(struct tfevents_scalar *v, int n, bool eval, const double mean[PREFER_VALUES])
{
    const struct tfevents_scalar more[] = {
        {eval ? "eval/rewards/chosen" : "train/rewards/chosen", mean[PREFER_CHOSEN]},
        {eval ? "eval/rewards/rejected" : "train/rewards/rejected", mean[PREFER_REJECTED]},
        {eval ? "eval/rewards/margins" : "train/rewards/margins", mean[PREFER_MARGIN]},
        {eval ? "eval/rewards/accuracies" : "train/rewards/accuracies", mean[PREFER_RIGHT]}};
    memcpy(v + n, more, sizeof more);
    return n + (int)(sizeof more / sizeof *more);
}

/* Puts the values of a step into the buffer. Names and units are the same as in the metrics over
 * REST (daemon/state/doc.c). */
static void put_step(struct training *t)
{
    const struct rank_step *s = &t->step;
    const struct run *r = t->r;
    const double tokens_s = s->step_us > 0 ? (double)s->tokens * 1e6 / (double)s->step_us : 0;
    struct tfevents_scalar v[TFEVENTS_SCALARS] = {
        {"train/loss", s->loss},
        {"train/grad_norm", s->grad_norm},
        {"train/lr", s->lr},
        {"speed/tokens_s", tokens_s},
        {"speed/step_ms", (double)s->step_us / 1000},
        {"speed/comm_wait_ms", (double)s->comm_wait_us / 1000},
        {"memory/high", (double)s->memory_high},
    };
    int n = 7;
    if (s->host_planned)
        v[n++] = (struct tfevents_scalar){"memory/host_high", (double)s->host_high};
    if (r->plan.precision == PRECISION_FP16)
        v[n++] = (struct tfevents_scalar){"train/loss_scale", scale_of(r->spec, &t->train.scale)};
    if (s->pairs) n = add_pairs(v, n, false, t->train.preference);
    put(t, s->step, v, n);
}

/* Puts the values of an evaluation into the buffer. Names and units are those of EV_EVAL. */
static void put_eval(struct training *t)
{
    struct tfevents_scalar v[TFEVENTS_SCALARS] = {{"eval/loss", t->eval.loss}};
    int n = 1;
    if (training_has_ppl(t)) v[n++] = (struct tfevents_scalar){"eval/ppl", exp(t->eval.loss)};
    if (training_eval_in_bytes(t))
        v[n++] = (struct tfevents_scalar){"eval/bits_per_byte", eval_bits_per_byte(&t->eval)};
    if (t->r->plan.pairs) n = add_pairs(v, n, true, t->eval.preference);
    put(t, t->state.eval_step, v, n);
}

/* ---- when ------------------------------------------------------------------------------------ */

static int fail(struct training *t, struct err *why, struct err *e)
{
    struct curves *c = &t->curves;
    c->failed = true;
    log_warn("rank.curves", "step=%lld reason=\"%s\"", (long long)t->train.step, why->text);
    if (c->said) return 0;
    c->said = true;
    err_prefix(why, "curves for TensorBoard are not written before the next checkpoint");
    return training_note(
        t,
        &(struct training_note){
            .code = "tensorboard_failed", .text = why->text, .step = t->train.step, .from = -1},
        e);
}

static int flush(struct training *t, bool sync, struct err *e)
{
    struct curves *c = &t->curves;
    char dir[FILE_PATH_SIZE];
    struct err why = {0};
    if (!c->any) return 0;
    if (!c->listed &&
        (file_join(dir, &why, "%s/artifacts", t->r->args->job_dir) || file_make_dir(dir, &why)))
        return fail(t, &why, e);
    if (tfevents_flush(&c->file, sync, &why)) return fail(t, &why, e);
    c->flushed_us = clock_us();
    c->said = false;
    return c->listed ? 0 : list(t, e);
}

/* Flushes if a flush is due. The first record is written immediately, so that the file exists from
 * then on. */
static int flush_due(struct training *t, struct err *e)
{
    const struct curves *c = &t->curves;
    if (c->failed || (c->flushed_us && clock_us() - c->flushed_us < FLUSH_US)) return 0;
    return flush(t, false, e);
}

bool training_curves_has(int64_t step, int64_t n_steps)
{
    int64_t every = 1;
    while (step >= 2 * DENSE * every) every *= 2;
    return step % every == 0 || step == n_steps;
}

int training_curves_step(struct training *t, struct err *e)
{
    if (!*t->curves.name || !training_curves_has(t->step.step, t->r->spec->train.steps)) return 0;
    put_step(t);
    return flush_due(t, e);
}

int training_curves_eval(struct training *t, struct err *e)
{
    if (!*t->curves.name) return 0;
    put_eval(t);
    return flush_due(t, e);
}

int training_curves_keep(struct training *t, struct err *e)
{
    t->curves.failed = false;
    return *t->curves.name ? flush(t, true, e) : 0;
}

void training_curves_back(struct training *t)
{
    struct curves *c = &t->curves;
    if (!c->start || c->start > t->train.step + 1) c->start = t->train.step + 1;
}

void training_curves_end(struct training *t)
{
    struct curves *c = &t->curves;
    struct err e = {0};
    if (!*c->name) return;
    if (!training_curves_keep(t, &e) && !c->failed && c->listed && finish(t, c->name, &e))
        log_warn("rank.curves", "file=%s reason=\"%s\"", c->name, e.text);
    c->name[0] = 0;
}
