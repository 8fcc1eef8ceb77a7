/* doc.c: writes jobs, steps, nodes and events as JSON. */
#include "daemon/state/doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jread.h"
#include "api/core/shared.h"
#include "daemon/state/attempt.h"
#include "daemon/state/serve_counts.h"

char *doc_time(int64_t at_ms, char *out)
{
    time_t s = (time_t)(at_ms / 1000);
    struct tm tm;
    gmtime_r(&s, &tm);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 32 - n, ".%03dZ", (int)(at_ms % 1000));
    return out;
}

void doc_put_time(struct jwrite *w, const char *key, int64_t at_ms)
{
    char text[32];
    if (at_ms)
        jwrite_str(w, key, doc_time(at_ms, text));
    else
        jwrite_null(w, key);
}

/* Tells whether the job waits for its start, for disk space for a save, or for a node that is
 * away. */
static bool waits(const struct job *j)
{
    return j->state == JOB_QUEUED || job_unsaved(j) || (attempt_alive(j) && job_away(j) >= 0);
}

static void put_reason(struct jwrite *w, const struct job *j)
{
    if (!waits(j) || !*j->reason_code) {
        jwrite_null(w, "reason");
        return;
    }
    jwrite_object(w, "reason");
    jwrite_str(w, "code", j->reason_code);
    jwrite_str(w, "text", j->reason);
    jwrite_end(w);
}

static void put_error(struct jwrite *w, const struct job *j)
{
    if (!job_err(j)->code) {
        jwrite_null(w, "error");
        return;
    }
    jwrite_object(w, "error");
    jwrite_str(w, "code", err_name(job_err(j)->code));
    jwrite_str(w, "field", job_err(j)->field);
    jwrite_str(w, "text", job_err(j)->text);
    if (j->err_rank >= 0)
        jwrite_int(w, "rank", j->err_rank);
    else
        jwrite_null(w, "rank");
    jwrite_str(w, "node", j->err_node);
    jwrite_str(w, "class", event_cause_name(j->err_cause));
    jwrite_end(w);
}

/* If a node of the job is away, writes the member with the node's name and the time since which it
 * is away. Otherwise leaves the member out. */
static void put_away(struct jwrite *w, const struct job *j)
{
    const int i = attempt_alive(j) ? job_away(j) : -1;
    if (i < 0) return;
    jwrite_object(w, "away");
    jwrite_str(w, "node", j->places[i].node);
    doc_put_time(w, "since", j->away_ms[i]);
    jwrite_end(w);
}

/* Writes until when a job that serves answers its open requests before it stops. */
static void put_drain(struct jwrite *w, const struct job *j)
{
    if (j->state == JOB_STOPPING && j->saving && j->attempt && j->attempt->drain_ms)
        doc_put_time(w, "drains_until", j->attempt->drain_ms);
}

static void put_rate(struct jwrite *w, const char *key, bool known, double rate)
{
    if (known)
        jwrite_double(w, key, rate);
    else
        jwrite_null(w, key);
}

/* Writes the speed of an attempt that runs, and the time that is left at that speed. */
static void put_speed(struct jwrite *w, const struct job *j, const struct rank_progress *p)
{
    const bool goes_on = attempt_alive(j) && j->attempt;
    double rate = 0, tokens = 0;
    const bool known = goes_on && pace_speed(&j->attempt->pace, &rate, &tokens);
    if (p->unit == PROGRESS_TOKENS) tokens = rate;
    put_rate(w, "rate", known, rate);
    put_rate(w, "tokens_s", known && tokens > 0, tokens);
    put_rate(w, "eta_s", known && p->total > 0, (p->total - p->done) / rate);
}

/* Returns the progress of a serve job: the answered requests of all its attempts. */
static struct rank_progress progress_of_serving(const struct serve_counts *c)
{
    return (struct rank_progress){.unit = PROGRESS_REQUESTS,
                                  .done = (double)serve_counts_requests(c)};
}

/* Writes the progress. If a job waits, or ended before its first step while its data was being
 * prepared or the references of its answers were computed, its progress is the steps that it has
 * reached. */
static void put_progress(struct jwrite *w, const struct job *j)
{
    struct rank_progress p = j->progress;
    const bool said = p.total > 0 || p.done > 0;
    const bool early = p.unit == PROGRESS_BYTES || p.unit == PROGRESS_SAMPLES;
    if (j->state == JOB_QUEUED || j->state == JOB_SUSPENDED || (job_final(j->state) && early) ||
        !said)
        p = (struct rank_progress){
            .unit = PROGRESS_STEPS, .done = (double)j->step, .total = (double)j->steps};
    if (j->serving) p = progress_of_serving(j->serving);
    if (p.total <= 0 && p.done <= 0) {
        jwrite_null(w, "progress");
        return;
    }
    jwrite_object(w, "progress");
    jwrite_str(w, "unit", progress_unit_name(p.unit));
    jwrite_int(w, "done", (int64_t)p.done);
    if (p.total > 0) {
        jwrite_int(w, "total", (int64_t)p.total);
        jwrite_double(w, "fraction", p.done / p.total);
    } else {
        jwrite_null(w, "total");
        jwrite_null(w, "fraction");
    }
    put_speed(w, j, &p);
    jwrite_end(w);
}

static void put_labels(struct jwrite *w, const struct job_spec *s)
{
    jwrite_object(w, "labels");
    for (int i = 0; i < s->n_labels; i++)
        jwrite_str(w, spec_text(s, s->labels[i].key), spec_text(s, s->labels[i].value));
    jwrite_end(w);
}

static void put_gpus(struct jwrite *w, const struct job *j, const struct job_place *p)
{
    jwrite_array(w, "gpus");
    for (int r = 0; r < p->n_ranks; r++) jwrite_str(w, NULL, j->gpus[p->first_rank + r]);
    jwrite_end(w);
}

/* Writes the places of the current or last attempt, in rank order. */
static void put_places(struct jwrite *w, const struct job *j)
{
    jwrite_array(w, "nodes");
    for (int i = 0; i < j->n_places; i++) {
        jwrite_object(w, NULL);
        jwrite_str(w, "node", j->places[i].node);
        jwrite_int(w, "first_rank", j->places[i].first_rank);
        jwrite_int(w, "ranks", j->places[i].n_ranks);
        if (j->gpus) put_gpus(w, j, &j->places[i]);
        jwrite_end(w);
    }
    jwrite_end(w);
}

/* Removes the braces of a complete object, so that its members can be put into a larger object. */
static int64_t bare(struct jwrite *w, char *out)
{
    int64_t n = jwrite_finish(w);
    if (n < 2) return -1;
    memmove(out, out + 1, (size_t)n - 2);
    out[n - 2] = 0;
    return n - 2;
}

int64_t doc_job(const struct job *j, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "id", j->id);
    jwrite_str(&w, "name", spec_text(job_spec(j), job_spec(j)->name));
    jwrite_str(&w, "kind", spec_kind_name(job_spec(j)->kind));
    jwrite_str(&w, "state", job_state_name(j->state));
    jwrite_str(&w, "phase", job_phase(j));
    if (j->state == JOB_STOPPING) jwrite_str(&w, "target", job_state_name(j->target));
    put_reason(&w, j);
    put_away(&w, j);
    put_drain(&w, j);
    if (*j->owner)
        jwrite_str(&w, "owner", j->owner);
    else
        jwrite_null(&w, "owner");
    jwrite_int(&w, "priority", job_spec(j)->priority);
    doc_put_time(&w, "created_at", j->created_ms);
    doc_put_time(&w, "started_at", j->started_ms);
    doc_put_time(&w, "finished_at", j->finished_ms);
    jwrite_int(&w, "version", j->version);
    jwrite_int(&w, "epoch", j->epoch);
    jwrite_int(&w, "attempts", j->attempts);
    jwrite_int(&w, "restarts", j->restarts);
    jwrite_str(&w, "node", j->node);
    put_places(&w, j);
    jwrite_int(&w, "ranks", job_spec(j)->resources.ranks);
    jwrite_int(&w, "step", j->step);
    jwrite_int(&w, "steps", j->steps);
    jwrite_int(&w, "checkpoint_step", j->checkpoint_step);
    put_progress(&w, j);
    if (j->serving) serve_counts_write(j->serving, job_placed(j), &w);
    if (j->metrics)
        jwrite_raw(&w, "last_metrics", j->metrics);
    else
        jwrite_null(&w, "last_metrics");
    put_error(&w, j);
    /* labels come last, because people choose the keys of labels, and readers search the text for
     * keys that must come before these */
    put_labels(&w, job_spec(j));
    jwrite_end(&w);
    return bare(&w, out);
}

bool doc_is_json(const char *text)
{
    struct jread r;
    jread_init(&r, text, strlen(text));
    enum jtok t = jread_next(&r);
    return (t == J_OBJECT || t == J_ARRAY) && !jread_skip(&r) && jread_next(&r) == J_END;
}

int64_t doc_error(const struct err *e, char *out, size_t size)
{
    const struct job j = {.failure = (struct err *)e, .err_cause = CAUSE_FINAL, .err_rank = -1};
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    put_error(&w, &j);
    jwrite_end(&w);
    int64_t n = bare(&w, out);
    const size_t key = strlen("\"error\":");
    if (n < (int64_t)key) return -1;
    memmove(out, out + key, (size_t)n - key + 1);
    return n - (int64_t)key;
}

int64_t doc_unreadable(int64_t id, const struct err *e, int64_t at_ms, char *out, size_t size)
{
    struct job_spec *s = malloc(sizeof *s);
    if (!s) abort();
    spec_defaults(s);
    struct job *j = job_create(id, s);
    if (!j) abort();
    j->state = JOB_FAILED;
    job_set_err(j, e);
    j->err_cause = CAUSE_FINAL;
    j->finished_ms = at_ms;
    int64_t n = doc_job(j, out, size);
    job_destroy(j);
    free(s);
    return n;
}

static char *shown_unreadable(int64_t id)
{
    char *out = malloc(DOC_JOB_SIZE + 3);
    struct err e;
    if (!out) abort();
    err_set(&e, ERR_CORRUPT, "the stored document of job %lld cannot be read", (long long)id);
    int64_t n = doc_unreadable(id, &e, 0, out + 1, DOC_JOB_SIZE);
    if (n < 0) abort();
    out[0] = '{';
    memcpy(out + 1 + n, "}", 2);
    return out;
}

/* Finds the value of a member in an object. Returns false if there is no such member. */
static bool find_member(const char *object, const char *key, const char **from, size_t *size)
{
    struct jread r;
    jread_init(&r, object, strlen(object));
    if (jread_next(&r) != J_OBJECT) return false;
    while (jread_next(&r) == J_KEY) {
        const bool found = jread_is(&r, key);
        const char *at = r.p + strspn(r.p, " :");
        if (jread_skip(&r)) return false;
        if (!found) continue;
        *from = at;
        *size = (size_t)(r.p - at);
        return true;
    }
    return false;
}

bool doc_job_node(const char *doc, char out[NODE_NAME])
{
    const char *from;
    size_t size;
    char *text = malloc(strlen(doc) + 3);
    if (!text) abort();
    sprintf(text, "{%s}", doc);
    const bool found = find_member(text, "node", &from, &size) && size > 2 && *from == '"' &&
                       size - 2 < NODE_NAME;
    if (found) snprintf(out, NODE_NAME, "%.*s", (int)size - 2, from + 1);
    free(text);
    return found;
}

char *doc_shown(int64_t id, const char *doc, const struct job *live)
{
    char why[8 * JOB_REASON_SIZE], *out;
    const char *state, *away, *old;
    size_t n, away_size, old_size;
    struct jwrite w;
    jwrite_init(&w, why, sizeof why);
    jwrite_object(&w, NULL);
    if (live && waits(live)) put_reason(&w, live);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 2) abort();
    if (!(out = malloc(strlen(doc) + sizeof why + 3))) abort();
    sprintf(out, "{%s}", doc);
    if (!doc_is_json(out)) {
        free(out);
        return shown_unreadable(id);
    }
    if (!find_member(out, "state", &state, &n) ||
        (strncmp(state, "\"queued\"", 8) && !find_member(out, "away", &away, &away_size)) ||
        !find_member(out, "reason", &old, &old_size) || strlen(why) <= 2)
        return out;
    /* replace the stored value by the value in {"reason":...} */
    const size_t at = (size_t)(old - out);
    why[strlen(why) - 1] = 0;
    snprintf(out + at, strlen(doc) + sizeof why + 3 - at, "%s%s}", why + strlen("{\"reason\":"),
             doc + at - 1 + old_size);
    return out;
}

static void put_purpose(struct jwrite *w, int purpose, const struct comm_count *got,
                        const struct comm_count *planned)
{
    jwrite_object(w, purpose_name(purpose));
    jwrite_int(w, "bytes_sent", got->bytes_sent);
    jwrite_int(w, "bytes_received", got->bytes_received);
    jwrite_int(w, "messages_sent", got->messages_sent);
    jwrite_int(w, "messages_received", got->messages_received);
    jwrite_int(w, "planned_bytes_sent", planned->bytes_sent);
    jwrite_int(w, "planned_bytes_received", planned->bytes_received);
    jwrite_int(w, "planned_messages_sent", planned->messages_sent);
    jwrite_int(w, "planned_messages_received", planned->messages_received);
    jwrite_end(w);
}

static void put_pairs(struct jwrite *w, const struct rank_step *s)
{
    jwrite_object(w, "preferences");
    jwrite_int(w, "pairs", s->pairs);
    jwrite_double(w, "reward_chosen", s->reward_chosen);
    jwrite_double(w, "reward_rejected", s->reward_rejected);
    jwrite_double(w, "margin", s->reward_chosen - s->reward_rejected);
    jwrite_double(w, "accuracy", s->accuracy);
    jwrite_end(w);
}

int64_t doc_step(const struct rank_step *s, int64_t epoch, char *out, size_t size)
{
    static const struct comm_count nothing;
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "step", s->step);
    jwrite_int(&w, "epoch", epoch);
    jwrite_double(&w, "loss", s->loss);
    jwrite_double(&w, "grad_norm", s->grad_norm);
    jwrite_double(&w, "lr", s->lr);
    jwrite_int(&w, "tokens", s->tokens);
    jwrite_int(&w, "targets", s->targets);
    jwrite_double(&w, "tokens_s",
                  s->step_us > 0 ? (double)s->tokens * 1e6 / (double)s->step_us : 0);
    jwrite_double(&w, "step_ms", (double)s->step_us / 1000);
    jwrite_double(&w, "comm_wait_ms", (double)s->comm_wait_us / 1000);
    jwrite_object(&w, "comm");
    for (int p = 0; p < PURPOSE_N; p++) {
        const struct comm_count *is = rank_step_comm(s, p), *planned = rank_step_planned(s, p);
        if (memcmp(is, &nothing, sizeof nothing) || memcmp(planned, &nothing, sizeof nothing))
            put_purpose(&w, p, is, planned);
    }
    jwrite_end(&w);
    jwrite_bool(&w, "ledger_ok", s->ledger_ok != 0);
    if (s->pairs) put_pairs(&w, s);
    jwrite_object(&w, "memory");
    jwrite_int(&w, "high", s->memory_high);
    jwrite_int(&w, "planned", s->memory_planned);
    if (s->host_planned) {
        jwrite_int(&w, "host_high", s->host_high);
        jwrite_int(&w, "host_planned", s->host_planned);
    }
    jwrite_end(&w);
    jwrite_end(&w);
    return jwrite_finish(&w);
}

/* Writes the measured speed of the node. */
static void put_profile(struct jwrite *w, const struct profile *p)
{
    char text[DOC_PROFILE_SIZE];
    if (p->hop > 0 && profile_write(p, text, sizeof text) > 0)
        jwrite_raw(w, "profile", text);
    else
        jwrite_null(w, "profile");
}

static void put_node_gpu(struct jwrite *w, const struct gpu *g, int64_t holder)
{
    char why[128], capability[32];
    gpu_complaint(g, why, sizeof why);
    snprintf(capability, sizeof capability, "%d.%d", g->major, g->minor);
    jwrite_object(w, NULL);
    jwrite_str(w, "uuid", g->uuid);
    jwrite_str(w, "name", g->name);
    jwrite_str(w, "bus", g->bus);
    jwrite_str(w, "capability", capability);
    jwrite_int(w, "memory_bytes", g->memory_size);
    jwrite_int(w, "memory_free_bytes", g->memory_free);
    jwrite_str(w, "health", gpu_health_name(g->health));
    if (*why)
        jwrite_str(w, "why", why);
    else
        jwrite_null(w, "why");
    jwrite_int(w, "processes", g->n_processes);
    if (holder)
        jwrite_int(w, "job", holder);
    else
        jwrite_null(w, "job");
    jwrite_end(w);
}

static void put_quarantine(struct jwrite *w, const struct quarantined *q)
{
    if (!q) {
        jwrite_null(w, "quarantine");
        return;
    }
    jwrite_object(w, "quarantine");
    doc_put_time(w, "since", q->at_ms);
    jwrite_str(w, "reason", q->reason);
    jwrite_end(w);
}

static void put_disk(struct jwrite *w, const struct disk_use *d)
{
    if (!d->size) {
        jwrite_null(w, "disk");
        return;
    }
    jwrite_object(w, "disk");
    jwrite_int(w, "bytes", d->size);
    jwrite_int(w, "free_bytes", d->free);
    jwrite_int(w, "jobs_bytes", d->jobs);
    jwrite_int(w, "prepared_bytes", d->prepared);
    jwrite_end(w);
}

static void put_cordon(struct jwrite *w, const struct doc_node *d)
{
    const struct cordon *c = d->cordon;
    if (!c) {
        jwrite_null(w, "cordon");
        return;
    }
    jwrite_object(w, "cordon");
    jwrite_str(w, "state", !c->drains ? "cordoned" : d->is_empty ? "drained" : "draining");
    doc_put_time(w, "since", c->at_ms);
    jwrite_str(w, "by", c->by);
    jwrite_str(w, "reason", c->reason);
    jwrite_end(w);
}

/* Writes the id of the node's shared directory. */
static void put_shared(struct jwrite *w, const struct node *n)
{
    char id[SHARED_ID_SIZE];
    snprintf(id, sizeof id, SHARED_ID, (unsigned long long)n->shared);
    if (n->shared)
        jwrite_str(w, "shared", id);
    else
        jwrite_null(w, "shared");
    jwrite_bool(w, "shared_away", n->shared_away);
}

void doc_node(struct jwrite *w, const struct node *n, const struct doc_node *d)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "name", n->name);
    jwrite_str(w, "state", n->up ? "up" : "down");
    doc_put_time(w, "revoked_at", d->revoked_ms);
    put_quarantine(w, d->quarantined);
    put_cordon(w, d);
    if (*n->address)
        jwrite_str(w, "address", n->address);
    else
        jwrite_null(w, "address");
    jwrite_int(w, "slots", n->n_slots);
    jwrite_int(w, "slots_free", n->n_slots - d->n_reserved);
    jwrite_int(w, "cores", n->n_cores);
    jwrite_int(w, "memory_bytes", n->memory_size);
    jwrite_int(w, "memory_held_bytes", d->memory_held);
    put_disk(w, &n->disk);
    jwrite_array(w, "gpus");
    for (int i = 0; i < n->n_gpus; i++) put_node_gpu(w, &n->gpu[i], d->holders[i]);
    jwrite_end(w);
    put_profile(w, &n->profile);
    doc_put_time(w, "ends_at", n->end_s * 1000);
    jwrite_str(w, "version", n->version);
    if (*n->sandbox)
        jwrite_str(w, "sandbox", n->sandbox);
    else
        jwrite_null(w, "sandbox");
    put_shared(w, n);
    jwrite_int(w, "protocol", n->abi);
    jwrite_int(w, "seen_ms_ago", d->now_ms - n->seen_ms);
    jwrite_int(w, "messages_dropped", n->n_dropped);
    jwrite_end(w);
}

int64_t doc_event(int64_t seq, int64_t job, int64_t epoch, int64_t at_ms, int type,
                  const char *data, char *out, size_t size)
{
    char at[32];
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "seq", seq);
    jwrite_int(&w, "job", job);
    jwrite_int(&w, "epoch", epoch);
    jwrite_str(&w, "at", doc_time(at_ms, at));
    jwrite_str(&w, "type", job_event_name((enum job_event)type));
    jwrite_raw(&w, "data", data);
    jwrite_end(&w);
    return jwrite_finish(&w);
}
