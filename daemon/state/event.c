/* event.c: the table of an event's members, by which an event is written as JSON and read back. */
#include "daemon/state/event.h"

#include <string.h>
#include "api/core/err_names.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/record.h"

static const char *const cause_names[CAUSE_N + 1] = {
    [CAUSE_NONE] = "none",
    [CAUSE_INFRASTRUCTURE] = "infrastructure",
    [CAUSE_USER] = "user",
    [CAUSE_FINAL] = "final",
};

const char *event_cause_name(int cause)
{
    return cause >= 0 && cause < CAUSE_N ? cause_names[cause] : "unknown";
}

static const char *const blame_names[BLAME_N + 1] = {
    [BLAME_NONE] = "none",
    [BLAME_NODE] = "node",
    [BLAME_FILES] = "files",
    [BLAME_JOB] = "job",
};

static const char *const task_names[] = {[TASK_PREPARE] = "prepare", [TASK_RUN] = "run", NULL};

/* ---- conditions ------------------------------------------------------------------------------ */

static bool is_assign(const void *record)
{
    const struct event *ev = record;
    return ev->type == EV_ASSIGN;
}

static bool has_task(const void *record)
{
    const struct event *ev = record;
    return ev->type == EV_ASSIGN || ev->type == EV_FAILED_AT;
}

static bool has_instances(const void *record)
{
    const struct event *ev = record;
    return is_assign(ev) && *ev->places[0].instance;
}

static bool has_gpus(const void *record)
{
    const struct event *ev = record;
    return is_assign(ev) && *ev->gpus[0];
}

static bool has_rank(const void *record)
{
    const struct event *ev = record;
    return ev->cause && ev->rank >= 0;
}

static bool has_field(const void *record)
{
    const struct event *ev = record;
    return ev->err.code && *ev->err.field;
}

static bool has_text(const void *record)
{
    const struct event *ev = record;
    return ev->err.code;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* clang-format off */
#define NUMBER(path, type, m, lo, hi, h, ...) {path, type, AT(m), lo, hi, .help = h, __VA_ARGS__}
#define INT(path, m, h)        NUMBER(path, FIELD_INT, m, INT64_MIN, INT64_MAX, h)
#define INT32(path, m, h, ...) NUMBER(path, FIELD_INT32, m, INT32_MIN, INT32_MAX, h, __VA_ARGS__)
#define FLAG(path, m, h)       {path, FIELD_FLAG, AT(m), .help = h}
#define TEXT(path, m, h, ...)  {path, FIELD_TEXT, AT(m), .size = sizeof OF(m), .help = h, __VA_ARGS__}
#define LIST(path, l, h, ...)  {path, FIELD_LIST, .list = &l, .help = h, __VA_ARGS__}
/* The row of a FIELD_WORD member. `first` is the value of the list's first word. `unknown` is the
 * value of a word that only a newer seqd knows. */
#define WORD(path, m, list, first, unknown, h, ...) {path, FIELD_WORD, AT(m), .min = first, .words = list, .fallback = unknown, .help = h, __VA_ARGS__}

#define OF(member) ((struct job_place *)0)->member
#define AT(member) offsetof(struct job_place, member)
static const struct field place_rows[] = {
    TEXT("node", node, "The node's name.", .when = record_always),
    NUMBER("first_rank", FIELD_INT32, first_rank, 0, JOB_MAX_RANKS - 1, "The first of its ranks.", .when = record_always),
    NUMBER("n_ranks", FIELD_INT32, n_ranks, 1, JOB_MAX_RANKS, "How many ranks run there, in order."),
    {NULL}
};
#undef OF
#undef AT
static const struct field instance_rows[] = {{"", FIELD_TEXT, .size = INSTANCE_ID_SIZE}, {NULL}};
static const struct field gpu_rows[] = {{"", FIELD_TEXT, .size = GPU_UUID_SIZE}, {NULL}};
/* clang-format on */

/* Returns place i. An event of one node has no list of places. */
static const void *place_get(const void *record, int i)
{
    const struct event *ev = record;
    return ev->n_places > 1 && i < ev->n_places ? &ev->places[i] : NULL;
}

static void *place_add(void *record, int i)
{
    struct event *ev = record;
    if (i == JOB_MAX_RANKS) return NULL;
    ev->n_places = i + 1;
    ev->places[i].first_rank = ev->places[i].n_ranks = 0;
    return &ev->places[i];
}

/* Checks that the ranges of the places are contiguous and begin at rank 0. */
static bool place_holds(const void *record, int i)
{
    const struct job_place *p = ((const struct event *)record)->places;
    const int32_t next = i ? p[i - 1].first_rank + p[i - 1].n_ranks : 0;
    return *p[i].node && p[i].n_ranks && p[i].first_rank == next &&
           p[i].n_ranks <= JOB_MAX_RANKS - next;
}

/* Returns the instance of place i. An event of one node has no list of places, but has the
 * instance of place 0. */
static const void *instance_get(const void *record, int i)
{
    const struct event *ev = record;
    return i == 0 || i < ev->n_places ? ev->places[i].instance : NULL;
}

static void *instance_add(void *record, int i)
{
    struct event *ev = record;
    return i < JOB_MAX_RANKS ? ev->places[i].instance : NULL;
}

static const void *gpu_get(const void *record, int i)
{
    const struct event *ev = record;
    return i < ev->n_ranks && i < JOB_MAX_RANKS ? ev->gpus[i] : NULL;
}

static void *gpu_add(void *record, int i)
{
    struct event *ev = record;
    return i < JOB_MAX_RANKS ? ev->gpus[i] : NULL;
}

static const struct field_list places = {place_rows, place_get, place_add, place_holds};
static const struct field_list instances = {instance_rows, instance_get, instance_add, NULL};
static const struct field_list gpus = {gpu_rows, gpu_get, gpu_add, NULL};

/* ---- the members ----------------------------------------------------------------------------- */

/* clang-format off */
#define OF(member) ((struct event *)0)->member
#define AT(member) offsetof(struct event, member)
const struct field event_fields[] = {
    TEXT("by", by, "The user who requested it; left out where it was seqd itself."),
    WORD("task", task, task_names, TASK_PREPARE, TASK_RUN, "The work of the attempt.", .when = has_task),
    INT32("n_ranks", n_ranks, "Ranks of the attempt."),
    TEXT("source", source, "The node that has the checkpoint from which the job begins."),
    INT("shared", shared, "The id of the shared directory that has the files, as a number; left out where they lie on the node alone."),
    TEXT("node", node, "The node of rank 0, or the node on which it happened."),
    LIST("nodes", places, "The nodes of an attempt on several, in the order of its ranks."),
    LIST("instances", instances, "The instance of each node, in the same order.", .when = has_instances),
    LIST("gpus", gpus, "The UUID of each rank's GPU.", .when = has_gpus),
    WORD("class", cause, cause_names, CAUSE_NONE, CAUSE_USER, "Party that pays for a failure: infrastructure and user are tried again, final is not."),
    INT32("rank", rank, "The rank that failed.", .when = has_rank),
    INT32("exit_status", exit_status, "The exit status of its process."),
    INT32("signal", signal, "The signal that ended its process."),
    WORD("blame", blame, blame_names, BLAME_NONE, BLAME_NONE, "Party at fault: the node, its files or the job."),
    FLAG("oom", oom, "The kernel killed a process for memory on that node meanwhile."),
    INT("stepped_ms", stepped_ms, "UTC milliseconds: when the job last came further than ever before."),
    FLAG("gives_up", gives_up, "The failure is not tried again, since it was the last one."),
    WORD("code", err.code, err_names, ERR_NONE, ERR_INTERNAL, "The kind of the error."),
    TEXT("field", err.field, "The field of the spec that the error is about.", .when = has_field),
    TEXT("text", err.text, "The error in a sentence.", .when = has_text),
    INT("ran_ms", ran_ms, "Milliseconds that the attempt ran."),
    INT("step", step, "The step of a checkpoint, or the farthest step."),
    INT32("count", count, "How many times the job has failed in this way after that step."),
    TEXT("prepared_id", prepared_id, "The id of the prepared data."),
    INT("n_tokens", n_tokens, "Tokens of the prepared data."),
    INT("steps", steps, "train.steps, by the count of tokens."),
    WORD("form", form, spec_form_words, 1, 0, "The form that parallel.form auto became."),
    {"detail", FIELD_RAW, AT(detail), .size = EVENT_DETAIL_SIZE, .help = "The words of a rank: for eval {step, loss, ppl, ...}, for a note {code, text}."},
    {NULL}
};
/* clang-format on */

int64_t event_write(const struct event *ev, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    record_write(&w, NULL, event_fields, ev);
    return jwrite_finish(&w);
}

int event_read(const char *data, size_t size, struct event *ev, struct err *e)
{
    struct jread j;
    ev->rank = -1;
    jread_init(&j, data, size);
    if (jread_next(&j) != J_OBJECT) return err_set(e, ERR_CORRUPT, "an event is not an object");
    return record_read(&j, event_fields, ev, e) ? err_prefix(e, "an event") : 0;
}
