/* job_fold.c: changes a job by its events, with one function for each kind of event. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jread.h"
#include "api/core/mutant.h"
#include "api/core/rank.h"
#include "daemon/state/jobs.h"
#include "worker/plan/stage.h"

/* Tells whether a running attempt is given time when it must stop: to save data from which the
 * next attempt can continue, or to answer its open requests. A generation saves a journal only for
 * a batch; other prompts are generated again. */
static bool saves(const struct job *j)
{
    const int kind = job_spec(j)->kind;
    return j->task == TASK_RUN &&
           (kind == JOB_TRAIN || kind == JOB_SCORE || job_generates(job_spec(j)));
}

static int64_t div_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

int64_t job_steps(const struct job_spec *s, int64_t n_tokens)
{
    if (s->kind != JOB_TRAIN) return 0;
    if (s->train.steps) return s->train.steps;
    /* A pass has ceil(n_tokens / S) windows. The run's last step may extend into the next pass. */
    if (s->train.tokens) return stage_steps_of_tokens(s, s->train.tokens);
    int64_t samples[SPEC_STAGES + 1];
    for (int i = -1; i < s->n_stages; i++)
        samples[i + 1] = div_up(n_tokens > 0 ? n_tokens : 1, stage_seq_len(s, i));
    return stage_steps_of_passes(s, s->train.passes, samples);
}

static int64_t backoff_ms(int32_t n_failures)
{
    if (n_failures <= 1) return 0; /* the first retry has no delay */
    int64_t ms = (int64_t)1000 << (n_failures - 2 > 6 ? 6 : n_failures - 2);
    return ms > JOB_BACKOFF_MAX_MS ? JOB_BACKOFF_MAX_MS : ms;
}

static void fold_places(struct job *j, const struct event *ev)
{
    int n = ev->n_places ? ev->n_places : 1;
    struct job_place *p = realloc(j->places, (size_t)n * sizeof *p);
    if (!p) abort();
    j->places = p;
    j->n_places = n;
    free(j->away_ms);
    if (!(j->away_ms = calloc((size_t)n, sizeof *j->away_ms))) abort();
    if (ev->n_places) {
        memcpy(p, ev->places, (size_t)n * sizeof *p);
        return;
    }
    *p = (struct job_place){.n_ranks = ev->task == TASK_PREPARE ? 1 : job_spec(j)->resources.ranks};
    memcpy(p->node, ev->node, sizeof p->node);
    memcpy(p->instance, ev->places[0].instance, sizeof p->instance);
}

/* Sets the ranks' GPUs. They belong to the job until every node has confirmed that its part of the
 * attempt is over. */
static void fold_gpus(struct job *j, const struct event *ev)
{
    const int n = j->places[j->n_places - 1].first_rank + j->places[j->n_places - 1].n_ranks;
    free(j->gpus);
    j->gpus = NULL;
    if (!*ev->gpus[0]) return;
    if (!(j->gpus = malloc((size_t)n * sizeof *j->gpus))) abort();
    memcpy(j->gpus, ev->gpus, (size_t)n * sizeof *j->gpus);
}

static void fold_assign(struct job *j, const struct event *ev)
{
    fold_places(j, ev);
    fold_gpus(j, ev);
    j->epoch = ev->epoch;
    j->task = ev->task;
    j->alone = j->crowded;
    j->crowded = false;
    memcpy(j->node, ev->node, sizeof j->node);
    j->shared = ev->shared;
    if (ev->task == TASK_RUN) j->attempts++;
    if (!j->started_ms) j->started_ms = ev->at_ms;
    if (!j->tried_ms) j->tried_ms = ev->at_ms;
}

/* Notes the GPU of a rank whose device has failed, so that the next attempt avoids this GPU if
 * possible. */
static void fold_avoid(struct job *j, const struct event *ev)
{
    if (ev->err.code != ERR_DEVICE || ev->rank < 0 || !j->gpus) return;
    for (int i = 0; i < j->n_places; i++) {
        const struct job_place *p = &j->places[i];
        if (ev->rank < p->first_rank || ev->rank >= p->first_rank + p->n_ranks) continue;
        memcpy(j->avoid_gpu, j->gpus[ev->rank], sizeof j->avoid_gpu);
        memcpy(j->avoid_node, p->node, sizeof j->avoid_node);
    }
}

/* Notes that the node has been away since since_ms, or, if since_ms is 0, that the node is
 * connected again. */
static void fold_away(struct job *j, const char *node, int64_t since_ms)
{
    for (int i = 0; i < j->n_places; i++)
        if (!strcmp(j->places[i].node, node)) j->away_ms[i] = since_ms;
}

/* Sets the state into which the failed job will change. If the job is already stopping, this state
 * is not changed, because a cancel takes precedence over a failure, and a later failure follows
 * from the first. */
static void fold_failure(struct job *j, const struct event *ev, enum job_state before)
{
    j->crowded = j->crowded || ev->oom;
    /* The job moves to other nodes, because its node was away until it counted as lost. */
    const bool moves = ev->type == EV_NODE_LOST && job_away_on(j, ev->node);
    if (ev->type == EV_NODE_LOST) fold_away(j, ev->node, 0);
    if (before == JOB_STOPPING) return;
    job_set_err(j, &ev->err);
    j->err_cause = ev->cause;
    j->err_rank = ev->rank;
    memcpy(j->err_node, ev->node, sizeof j->err_node);
    fold_avoid(j, ev);
    fold_blame(j, ev, before);
    /* A failed attempt of a serve job tells here that it has made progress. */
    if (job_spec(j)->kind == JOB_SERVE && ev->stepped_ms > j->stepped_ms) j->n_failures = 0;
    if (ev->stepped_ms > j->stepped_ms) j->stepped_ms = ev->stepped_ms;
    /* If the node lacks files, the next node is tried without a delay. */
    const bool at_once = moves || ev->blame == BLAME_FILES;
    if (!at_once) j->n_failures++;
    j->backoff_ms = at_once ? 0 : backoff_ms(j->n_failures);
    j->not_before_ms = ev->at_ms + j->backoff_ms;
    bool again = ev->cause == CAUSE_INFRASTRUCTURE && !ev->gives_up;
    if (ev->cause == CAUSE_USER && j->restarts < job_spec(j)->limits.restarts) {
        j->restarts++;
        again = true;
    }
    j->target = again ? JOB_QUEUED : JOB_FAILED;
}

static void fold_prepared(struct job *j, const struct event *ev)
{
    fold_away(j, j->node, 0);
    memcpy(j->prepared_id, ev->prepared_id, sizeof j->prepared_id);
    memcpy(j->prepared_node, j->node, sizeof j->prepared_node);
    j->prepared_shared = j->shared;
    j->n_tokens = ev->n_tokens;
    /* The form is chosen only once, even if a different node prepares the data again. */
    if (ev->form && job_spec(j)->parallel.form == FORM_AUTO)
        job_spec_edit(j)->parallel.form = ev->form - 1;
    if (!ev->steps) return;
    j->steps = ev->steps;
    job_spec_edit(j)->train.steps = ev->steps;
    if (job_spec(j)->schedule.warmup_steps < 0)
        job_spec_edit(j)->schedule.warmup_steps = div_up(ev->steps, 50);
}

/* Forgets the checkpoint, the failures and the farthest step of the job. */
static void fold_restart(struct job *j)
{
    j->checkpoint_step = 0;
    j->checkpoint_node[0] = 0;
    j->checkpoint_shared = 0;
    j->n_failures = 0;
    j->not_before_ms = j->backoff_ms = 0;
    j->avoid_gpu[0] = j->avoid_node[0] = 0;
    j->n_left = 0;
    j->stepped_ms = j->tried_ms = 0;
    farthest_clear(&j->farthest);
}

/* Sets the next state when an attempt is asked to save and stop. If the job is already stopping,
 * its target is unchanged, with one exception: a job that would be queued can still be
 * suspended. */
static void fold_ask(struct job *j, const struct event *ev, enum job_state before)
{
    static const enum job_state targets[JOB_EVENT_N] = {
        [EV_SUSPEND] = JOB_SUSPENDED, [EV_WALL_LIMIT] = JOB_FAILED, [EV_DRAIN] = JOB_QUEUED};
    if (before == JOB_STOPPING && (j->target != JOB_QUEUED || ev->type != EV_SUSPEND)) return;
    if (before != JOB_STARTING && before != JOB_RUNNING && before != JOB_STOPPING) return;
    j->target = targets[ev->type];
    if (before == JOB_STOPPING) return;
    j->saving = before == JOB_RUNNING && saves(j);
    if (ev->type != EV_WALL_LIMIT) return;
    job_set_err(j, &ev->err);
    j->err_cause = CAUSE_FINAL;
    j->err_rank = -1;
    memcpy(j->err_node, j->node, sizeof j->err_node);
}

/* Clears the times and the backoff of retries, because they do not count while a job is suspended.
 * If the job is still stopping to be suspended, it is queued when it has stopped. */
static void fold_resume(struct job *j, enum job_state before)
{
    if (before == JOB_STOPPING) {
        if (j->target == JOB_SUSPENDED) j->target = JOB_QUEUED;
        return;
    }
    j->stepped_ms = j->tried_ms = 0;
    j->n_failures = 0;
    j->not_before_ms = j->backoff_ms = 0;
}

/* Adds advice to the error of a job that has reached its time limit. The advice tells how to
 * continue the job. It depends on the last step that the job has saved, which is known only
 * now. */
static void end_by_wall(struct job *j)
{
    if (job_err(j)->code != ERR_WALL_LIMIT || j->state != JOB_FAILED) return;
    const size_t n = strlen(j->failure->text), room = sizeof j->failure->text - n;
    char *out = j->failure->text + n;
    if (job_spec(j)->kind != JOB_TRAIN)
        snprintf(out, room, "; submit it with a larger limit");
    else if (j->checkpoint_step)
        snprintf(
            out, room,
            "; step %lld is saved: `seqctl continue %lld --set limits.wall_s=...` continues it",
            (long long)j->checkpoint_step, (long long)j->id);
    else
        snprintf(out, room, "; no step is saved");
}

static void fold_end(struct job *j, const struct event *ev, enum job_state before)
{
    j->ran_ms += ev->ran_ms;
    j->saving = false;
    for (int i = 0; i < j->n_places; i++) j->away_ms[i] = 0;
    if (ev->type == EV_STOPPED) {
        j->state = j->target;
        end_by_wall(j);
        return;
    }
    if (before == JOB_STOPPING) j->state = JOB_SUCCEEDED;
    job_set_err(j, &(struct err){0});
    j->err_cause = CAUSE_NONE;
    j->err_rank = -1;
}

/* Returns a number in a rank's report of its product, or 0 if it is missing. */
static int64_t number_in(const char *json, const char *key)
{
    struct jread r;
    int64_t n = 0;
    jread_init(&r, json, strlen(json));
    if (jread_next(&r) != J_OBJECT) return 0;
    while (jread_next(&r) == J_KEY) {
        const bool found = jread_is(&r, key);
        if (!found && jread_skip(&r)) return 0;
        if (found) return jread_next(&r) == J_NUMBER && !jread_int(&r, &n) && n > 0 ? n : 0;
    }
    return 0;
}

static bool is_unsaved(const struct job *j)
{
    return !strcmp(j->reason_code, JOB_UNSAVED);
}

bool job_unsaved(const struct job *j)
{
    return job_placed(j) && is_unsaved(j);
}

/* Notes that the attempt of a serve job has loaded its model. */
static void fold_serving(struct job *j)
{
    if (job_spec(j)->kind == JOB_SERVE) j->serving_epoch = j->epoch;
}

/* Makes the note about a failed checkpoint the job's `reason` until the next checkpoint or the end
 * of the attempt. So the user learns that the job has saved less than expected, or waits for disk
 * space. */
static void fold_note(struct job *j, const struct event *ev)
{
    char code[32] = "", text[1024] = "";
    struct jread r;
    size_t n;
    jread_init(&r, ev->detail, strlen(ev->detail));
    if (jread_next(&r) != J_OBJECT) return;
    while (jread_next(&r) == J_KEY) {
        const bool is_code = jread_is(&r, "code"), is_text = jread_is(&r, "text");
        if (!is_code && !is_text && jread_skip(&r)) return;
        if (!is_code && !is_text) continue;
        if (jread_next(&r) != J_STRING) return;
        if (is_code && jread_copy(&r, code, sizeof code)) return;
        if (is_code && !strcmp(code, RANK_NOTE_SERVES)) fold_serving(j);
        if (is_text && !strcmp(code, JOB_UNSAVED)) {
            if (jread_copy(&r, text, sizeof text)) return;
            for (n = JOB_REASON_SIZE - 1; n && (text[n] & 0xc0) == 0x80;)
                n--; /* end the text before a whole character */
            text[n] = 0;
            struct job_reason *note = job_reason_create(code, text);
            job_reason_set(j, note);
            job_reason_drop(note);
        }
    }
}

/* Reads the name of a product from a rank's report. Returns NULL if the product has no name. */
static const char *name_in(const char *json, char *out, size_t size)
{
    struct jread r;
    jread_init(&r, json, strlen(json));
    if (jread_next(&r) != J_OBJECT) return NULL;
    while (jread_next(&r) == J_KEY) {
        const bool found = jread_is(&r, "name");
        if (!found && jread_skip(&r)) return NULL;
        if (found) return jread_next(&r) == J_STRING && !jread_copy(&r, out, size) ? out : NULL;
    }
    return NULL;
}

/* Tells whether ev reports progress that no attempt has made before. */
static bool is_further(struct job *j, const struct event *ev)
{
    char name[256];
    if (ev->type == EV_STEP) return farthest_step(&j->farthest, ev->step);
    if (ev->type != EV_CHECKPOINT)
        return farthest_product(&j->farthest, ev->type, name_in(ev->detail, name, sizeof name),
                                ev->step);
    farthest_step(&j->farthest, ev->step);
    if (ev->step > j->farthest.stored) j->farthest.stored = ev->step;
    return ev->step > j->checkpoint_step;
}

/* Notes that this attempt has made progress. For that reason a later failure does not mean that
 * the node cannot start ranks. The job itself has made progress only if no earlier attempt had
 * come so far. */
static void fold_progress(struct job *j, const struct event *ev)
{
    j->step_epoch = j->epoch;
    if (is_further(j, ev) && ev->at_ms > j->stepped_ms) j->stepped_ms = ev->at_ms;
}

static void fold_reached(struct job *j, const struct event *ev)
{
    farthest_step(&j->farthest, ev->step);
    if (ev->step > j->farthest.stored) j->farthest.stored = ev->step;
    if (ev->stepped_ms > j->stepped_ms) j->stepped_ms = ev->stepped_ms;
}

/* Tells whether a cancel lets the job answer its open requests, as the first cancel of a job that
 * serves does. */
static bool drains(const struct job *j, enum job_state before)
{
    const bool first = before == JOB_STOPPING && j->saving && j->target != JOB_CANCELLED;
    return job_spec(j)->kind == JOB_SERVE && (before == JOB_RUNNING || first);
}

static int fold_submit(struct job *j, const struct event *ev, struct err *e)
{
    if (j->version) return err_set(e, ERR_CONFLICT, "job %lld exists", (long long)j->id);
    memcpy(j->owner, ev->by, sizeof j->owner);
    j->created_ms = ev->at_ms;
    memcpy(j->only, ev->node, sizeof j->only);
    memcpy(j->source, ev->source, sizeof j->source);
    j->source_shared = ev->shared;
    j->source_step = *j->source && ev->step < 1 ? 1 : ev->step;
    j->version = 1;
    return 0;
}

/* A failed GPU is still avoided afterwards, because a checkpoint does not repair it. */
static void fold_checkpoint(struct job *j, const struct event *ev)
{
    fold_progress(j, ev);
    j->checkpoint_step = ev->step;
    j->save_ms = number_in(ev->detail, "save_ms");
    memcpy(j->checkpoint_node, j->node, sizeof j->checkpoint_node);
    j->checkpoint_shared = j->shared;
    j->n_failures = 0;
}

int job_fold(struct job *j, const struct event *ev, struct err *e)
{
    enum job_state before = j->state;
    if (ev->type == EV_SUBMIT) return fold_submit(j, ev, e);
    int next = job_step(before, ev->type);
    if (next < 0)
        return err_set(e, ERR_CONFLICT, "job %lld is %s: it cannot take the event %s",
                       (long long)j->id, job_state_name(before), job_event_name(ev->type));
    j->state = (enum job_state)next;
    j->misread = j->misread || job_event_misread(ev->type);
    if (is_unsaved(j) && (ev->type == EV_CHECKPOINT || !job_placed(j))) job_reason_set(j, NULL);
    switch (ev->type) {
    case EV_NOTE: fold_note(j, ev); break;
    case EV_ASSIGN: fold_assign(j, ev); break;
    case EV_PREPARED: fold_prepared(j, ev); break;
    case EV_STEP:
        j->step = ev->step;
        fold_progress(j, ev);
        break;
    case EV_ARTIFACT:
    case EV_EVAL:
    case EV_VERIFIED: fold_progress(j, ev); break;
    case EV_CHECKPOINT: fold_checkpoint(j, ev); break;
    case EV_RANK_EXIT:
    case EV_NODE_LOST:
    case EV_START_TIMEOUT:
    case EV_HANG: fold_failure(j, ev, before); break;
    case EV_CANCEL:
        j->saving = drains(j, before);
        if (before != JOB_STOPPING || !mutant_on(MUTANT_CANCEL_LOST)) j->target = JOB_CANCELLED;
        break;
    case EV_SUSPEND:
    case EV_WALL_LIMIT:
    case EV_DRAIN: fold_ask(j, ev, before); break;
    case EV_WALL_WARNING: j->warned = true; break;
    case EV_RESUME: fold_resume(j, before); break;
    case EV_AWAY: fold_away(j, ev->node, ev->at_ms); break;
    case EV_BACK: fold_away(j, ev->node, 0); break;
    case EV_REACHED: fold_reached(j, ev); break;
    case EV_UNMET:
        job_set_err(j, &ev->err);
        j->err_cause = CAUSE_FINAL;
        j->err_rank = -1;
        break;
    case EV_FAILED_AT: farthest_fail(&j->farthest, ev); break;
    case EV_GIVE_UP:
    case EV_RESTART: fold_restart(j); break;
    case EV_STOPPED:
    case EV_DONE: fold_end(j, ev, before); break;
    default: break;
    }
    /* Steps come once a second and are not rows of the log, so they do not change the version. */
    if (ev->type != EV_STEP) j->version++;
    if (job_final(j->state)) j->finished_ms = ev->at_ms;
    return 0;
}
