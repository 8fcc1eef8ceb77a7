/* evidence.c: makes evidence from ledgers, from trainings that are watched while they run, and from
 * the planner. */
#include "tests/paper/evidence.h"
#include <stdlib.h>
#include <sys/mman.h>
#include "tests/lib/engine.h"
#include "tests/lib/grid_train.h"
#include "tests/paper/heap.h"
#include "tests/paper/search.h"
#include "worker/plan/check.h"
#include "worker/plan/plan.h"
#include "worker/program/label.h"

struct evidence {
    enum kind kind;
    char fault[160], note[96];
    int P, n_phases[EVIDENCE_RANKS];
    /* for a ledger, the bytes that each rank sent in each phase */
    int64_t sent[EVIDENCE_RANKS][EVIDENCE_PHASES];
    int64_t value, planned;
};

static struct evidence *make(enum kind kind)
{
    struct evidence *e = calloc(1, sizeof *e);
    if (!e) abort();
    e->kind = kind;
    return e;
}

/* Returns a deliberate error that is added to every count of a phase: 0 is forward, 1 is backward.
 * tests/paper/check.sh sets this error, to check that no row is accepted with a wrong count. */
static int64_t off_by(int phase)
{
    const char *s = getenv("SEQD_PAPER_OFF_BY_ONE");
    return s && *s == '0' + phase;
}

/* ---- ledgers --------------------------------------------------------------------------------- */

static struct evidence *counting; /* the evidence of the run in progress */

void evidence_phase(struct ranks *g, int rank)
{
    const struct comm_count *c = comm_ledger(g->comm[rank]);
    const int phase = counting->n_phases[rank]++;
    if (phase >= EVIDENCE_PHASES) abort();
    int64_t sum = rank == counting->P - 1 ? off_by(phase) : 0;
    for (int i = 0; i < PURPOSE_N; i++) sum += c[i].bytes_sent;
    counting->sent[rank][phase] = sum;
    comm_ledger_reset(g->comm[rank]);
}

struct evidence *evidence_ledger(int P, int64_t segment_size,
                                 void (*body)(struct ranks *, int, void *), void *arg)
{
    struct evidence *e = make(COUNTED);
    struct ranks g;
    if (P > EVIDENCE_RANKS) abort();
    e->P = P;
    counting = e;
    ranks_open(&g, P, segment_size, NULL);
    ranks_run(&g, body, arg);
    counting = NULL;
    for (int i = 0; i < P; i++) {
        e->value += e->sent[i][0];
        if (g.err[i].code) snprintf(e->fault, sizeof e->fault, "rank %d: %s", i, g.err[i].text);
        if (!e->n_phases[i] || e->n_phases[i] != e->n_phases[0])
            snprintf(e->fault, sizeof e->fault, "rank %d ended %d phases", i, e->n_phases[i]);
    }
    ranks_close(&g);
    if (!*e->fault && !e->value) snprintf(e->fault, sizeof e->fault, "the ledger counted nothing");
    return e;
}

/* ---- trainings: three books that the planner does not keep ----------------------------------- */

/* Three counts that the planner does not make: the end of the buffers that the model's own code
 * places, the pages that the kernel reports as touched, and every allocation of the process while
 * steps run. */

struct watch {
    pthread_barrier_t line;
    /* the number of bytes that were allocated before the steps, and the largest number of bytes
     * that were allocated in addition */
    int64_t before, grown;
    int64_t placed, pages, planned, arena;
    int64_t last; /* the step after which all counts are read */
};

/* Called when all ranks are ready and none is in a step. The first step fills the caches of the C
 * library. */
static void before(struct train *t, int rank, void *arg)
{
    struct watch *w = arg;
    pthread_barrier_wait(&w->line);
    if (rank == 0 && t->step == 1) heap_mark(), w->before = heap_live();
    pthread_barrier_wait(&w->line);
}

static int64_t pages_of(void *base, int64_t size)
{
    const int64_t n = size / PLAN_PAGE;
    unsigned char *seen = calloc((size_t)n, 1);
    int64_t sum = 0;
    if (!seen || mincore(base, (size_t)size, seen)) abort();
    for (int64_t i = 0; i < n; i++) sum += seen[i] & 1;
    free(seen);
    return sum * PLAN_PAGE;
}

static void after(struct train *t, int rank, void *arg)
{
    struct watch *w = arg;
    pthread_barrier_wait(&w->line);
    if (rank == 0 && t->step == w->last) {
        char *arena = (char *)t->model.params - t->plan->item[PLAN_PARAMS].offset;
        w->grown = heap_most() - w->before;
        w->placed = t->model.placed_size;
        w->arena = t->plan->arena_size;
        w->pages = pages_of(arena, w->arena);
        w->planned = w->arena + t->plan->segment_size;
    }
    pthread_barrier_wait(&w->line);
}

struct evidence *evidence_training(struct engine_run *r, struct job_spec *spec)
{
    struct evidence *e = make(COUNTED);
    struct watch w = {.last = r->steps};
    const int failures = test_failures_now;
    r->before_step = before, r->after_step = after, r->arg = &w;
    pthread_barrier_init(&w.line, NULL, (unsigned)spec->resources.ranks);
    engine_go(r, spec);
    engine_free(r);
    pthread_barrier_destroy(&w.line);
    e->value = w.placed + off_by(0);
    e->planned = w.planned;
    snprintf(e->note, sizeof e->note, "heap +%lld after step 1, %.1f %% of the pages touched",
             (long long)w.grown, w.arena ? 100.0 * (double)w.pages / (double)w.arena : 0);
    if (failures != test_failures_now)
        snprintf(e->fault, sizeof e->fault, "a step failed, or its ledger differs from the plan");
    else if (w.grown != 0 || w.pages <= 0 || w.pages > w.arena)
        snprintf(e->fault, sizeof e->fault, "%s", e->note);
    return e;
}

/* The sends in the first step: the number of bytes that all ranks sent, and the number of messages
 * that rank 0 sent. */
struct step_count {
    int64_t bytes, messages;
};

static void count_step(struct train *t, int rank, void *arg)
{
    struct step_count *c = arg;
    const struct comm_count moved = grid_moved(t);
    if (t->step != 1) return;
    __atomic_fetch_add(&c->bytes, moved.bytes_sent, __ATOMIC_RELAXED);
    if (rank == 0) c->messages = moved.messages_sent;
}

static struct evidence *count_steps(struct grid_data *d, const struct job_spec *spec, int P,
                                    struct step_count *c)
{
    struct evidence *e = make(COUNTED);
    struct engine_run r = {.steps = 2, .after_step = count_step, .arg = c};
    const int failures = test_failures_now;
    *c = (struct step_count){0};
    grid_go(d, &r, spec, P);
    engine_free(&r);
    if (failures != test_failures_now)
        snprintf(e->fault, sizeof e->fault, "a step failed, or its ledger differs from the plan");
    else if (!c->bytes)
        snprintf(e->fault, sizeof e->fault, "the ledger counted nothing");
    return e;
}

struct evidence *evidence_steps(struct grid_data *d, const struct job_spec *spec, int P)
{
    struct step_count c;
    struct evidence *e = count_steps(d, spec, P, &c);
    e->value = c.bytes + off_by(0);
    return e;
}

struct evidence *evidence_step_switches(struct grid_data *d, const struct job_spec *spec, int P)
{
    struct step_count c;
    struct evidence *e = count_steps(d, spec, P, &c);
    if (P < 2 || c.messages % (P - 1))
        snprintf(e->fault, sizeof e->fault, "a switch sent no message to some rank");
    e->value = c.messages / (P - 1) + off_by(0);
    return e;
}

/* ---- the planner ----------------------------------------------------------------------------- */

struct evidence *evidence_plan(struct job_spec *spec, struct err *err)
{
    static struct plan p;
    if (plan_make(spec, 0, &p, err)) return NULL;
    struct evidence *e = make(PLANNED);
    e->value = p.arena_size + p.segment_size;
    return e;
}

struct fitting {
    void (*describe)(struct job_spec *spec, int64_t S);
    int64_t limit;
    struct err refused;
};

static bool fits(int64_t S, void *arg)
{
    static struct job_spec spec;
    struct fitting *f = arg;
    f->describe(&spec, S);
    struct evidence *e = family_check(&spec, &f->refused) ? NULL
                                                          : evidence_plan(&spec, &f->refused);
    const bool ok = e && e->value <= f->limit;
    evidence_free(e);
    return ok;
}

struct evidence *evidence_longest(void (*describe)(struct job_spec *spec, int64_t S), int64_t limit)
{
    struct evidence *e = make(PLANNED);
    struct fitting f = {.describe = describe, .limit = limit};
    e->value = search_most(fits, &f, EVIDENCE_LEAST, JOB_MAX_SEQ);
    if (f.refused.code)
        snprintf(e->fault, sizeof e->fault, "refused: %.140s", f.refused.text);
    else if (e->value < 1 || e->value == JOB_MAX_SEQ)
        snprintf(e->fault, sizeof e->fault, "%s fits", e->value ? "every length" : "no length");
    return e;
}

struct evidence *evidence_switches(const struct label_graph *g)
{
    struct evidence *e = make(PLANNED);
    struct label_cost cost = {0};
    int way[LABEL_OPS];
    if (!label_solve(g, way, &cost))
        snprintf(e->fault, sizeof e->fault, "an operation needs every dimension whole");
    e->value = cost.n_moves + off_by(0);
    return e;
}

/* ---- reading --------------------------------------------------------------------------------- */

void evidence_free(struct evidence *e)
{
    free(e);
}

enum kind evidence_kind(const struct evidence *e)
{
    return e->kind;
}

const char *evidence_fault(const struct evidence *e)
{
    return *e->fault ? e->fault : NULL;
}

int64_t evidence_value(const struct evidence *e)
{
    return e->value;
}

int evidence_n_ranks(const struct evidence *e)
{
    return e->P;
}

int64_t evidence_sent(const struct evidence *e, int rank, int phase)
{
    return e->sent[rank][phase];
}

int64_t evidence_planned(const struct evidence *e)
{
    return e->planned;
}

const char *evidence_note(const struct evidence *e)
{
    return e->note;
}
