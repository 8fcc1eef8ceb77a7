/* test_seqd_jobs: checks that a job is the fold of its events. A replay of the stored JSON must
 * give the same job, for every order of events. The slots of a job must follow from its state. */
#include <stddef.h>
#include <stdlib.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/state/jobs.h"
#include "tests/lib/mutant.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"

static struct job_spec *spec_of(int kind)
{
    static struct job_spec s;
    struct err e;
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    s.kind = kind;
    s.model.shape.width = 64, s.model.shape.n_layers = 2, s.model.shape.n_heads = 4;
    s.model.shape.ffn_width = 128;
    s.data.seq_len = 100;
    s.train.passes = 2;
    s.train.global_batch = 4;
    s.resources.ranks = 2;
    s.limits.restarts = 1;
    spec_intern(&s, "a.txt", 5, &s.data.train[0].path);
    s.data.n_train = 1;
    CHECK(!family_check(&s, &e));
    return &s;
}

static unsigned seed = 3;

static void random_event(struct event *ev, const struct job *j, int64_t at)
{
    memset(ev, 0, sizeof *ev);
    ev->type = (enum job_event)(1 + rand_r(&seed) % (JOB_EVENT_N - 1));
    /* a preparation has no ring */
    if (ev->type == EV_UNMET && rand_r(&seed) % 8) ev->type = EV_EDIT; /* it ends the walk */
    if (ev->type == EV_READY && j->task == TASK_PREPARE) ev->type = EV_EDIT;
    ev->job = j->id;
    ev->at_ms = at;
    ev->epoch = j->epoch + (ev->type == EV_ASSIGN);
    ev->rank = -1;
    switch (ev->type) {
    case EV_ASSIGN:
        ev->task = job_needs_data(j) ? TASK_PREPARE : TASK_RUN;
        ev->n_ranks = 2;
        snprintf(ev->node, sizeof ev->node, "n%d", rand_r(&seed) % 3);
        if (rand_r(&seed) % 3)
            snprintf(ev->places[0].instance, INSTANCE_ID_SIZE, "0123456789abcde%u",
                     (unsigned)rand_r(&seed) % 9);
        if (ev->task == TASK_PREPARE || rand_r(&seed) % 2) break;
        ev->n_places = 2;
        ev->places[0].n_ranks = 1;
        memcpy(ev->places[0].node, ev->node, sizeof ev->node);
        ev->places[1] = (struct job_place){.node = "the \"other\"", .first_rank = 1, .n_ranks = 1};
        if (*ev->places[0].instance)
            snprintf(ev->places[1].instance, INSTANCE_ID_SIZE, "fedcba9876543210");
        break;
    case EV_RANK_EXIT:
    case EV_NODE_LOST:
    case EV_START_TIMEOUT:
    case EV_HANG:
        ev->cause = 1 + rand_r(&seed) % (CAUSE_N - 1);
        ev->rank = rand_r(&seed) % 3 - 1;
        ev->signal = rand_r(&seed) % 2 ? 9 : 0;
        ev->blame = rand_r(&seed) % BLAME_N;
        ev->gives_up = rand_r(&seed) % 8 == 0;
        ev->exit_status = rand_r(&seed) % 3;
        ev->oom = rand_r(&seed) % 4 == 0;
        ev->stepped_ms = j->stepped_ms; /* steps have no rows, so the test sets their time */
        snprintf(ev->node, sizeof ev->node, "a \"quoted\" \\ node%d", rand_r(&seed) % 2);
        err_field(&ev->err, ERR_PEER, "data.train.0", "line\twith \"quotes\" \xc3\xa9 and %d", 5);
        break;
    case EV_PREPARED:
        snprintf(ev->prepared_id, sizeof ev->prepared_id, "0123abc");
        ev->n_tokens = 12345;
        ev->steps = job_steps(job_spec(j), ev->n_tokens);
        ev->form = rand_r(&seed) % 2 ? 1 + FORM_ALL_GATHER : 0;
        snprintf(ev->detail, sizeof ev->detail, "{\"a\":[1,2,{\"b\":\"}\"}]}");
        break;
    case EV_AWAY:
    case EV_BACK:
        if (j->n_places)
            memcpy(ev->node, j->places[rand_r(&seed) % j->n_places].node, sizeof ev->node);
        break;
    case EV_REACHED: ev->step = 1 + rand_r(&seed) % 9; break;
    case EV_FAILED_AT:
        ev->task = rand_r(&seed) % 2 ? TASK_RUN : TASK_PREPARE;
        ev->step = rand_r(&seed) % 3;
        ev->signal = rand_r(&seed) % 2 ? 25 : 0;
        ev->count = farthest_count(&j->farthest, ev);
        break;
    case EV_UNMET: err_field(&ev->err, ERR_DEPENDENCY, "after", "it failed"); break;
    case EV_WALL_LIMIT: err_field(&ev->err, ERR_WALL_LIMIT, "limits.wall_s", "it ran"); break;
    case EV_STOPPED:
    case EV_DONE: ev->ran_ms = 1 + rand_r(&seed) % 1000; break;
    case EV_STEP:
    case EV_CHECKPOINT: ev->step = 1 + rand_r(&seed) % 1000; break;
    default: break;
    }
}

static void check_same(const struct job *a, const struct job *b)
{
    CHECK(a->saving == b->saving && a->ran_ms == b->ran_ms);
    CHECK(a->state == b->state && a->target == b->target && a->version == b->version);
    CHECK(a->epoch == b->epoch && a->attempts == b->attempts && a->task == b->task);
    CHECK(a->n_places == b->n_places && !strcmp(a->checkpoint_node, b->checkpoint_node));
    for (int i = 0; i < a->n_places; i++) {
        CHECK_STR(a->places[i].node, b->places[i].node);
        CHECK(a->places[i].first_rank == b->places[i].first_rank);
        CHECK(a->places[i].n_ranks == b->places[i].n_ranks);
        CHECK(a->away_ms[i] == b->away_ms[i]);
    }
    CHECK(!strcmp(a->node, b->node) && a->created_ms == b->created_ms);
    CHECK(a->started_ms == b->started_ms && a->finished_ms == b->finished_ms);
    CHECK(a->steps == b->steps && a->checkpoint_step == b->checkpoint_step);
    CHECK(a->restarts == b->restarts && a->n_failures == b->n_failures);
    CHECK(a->not_before_ms == b->not_before_ms && a->n_tokens == b->n_tokens);
    CHECK(!strcmp(a->prepared_node, b->prepared_node));
    CHECK(a->shared == b->shared && a->checkpoint_shared == b->checkpoint_shared);
    CHECK(a->prepared_shared == b->prepared_shared && a->source_shared == b->source_shared);
    CHECK(!strcmp(a->source, b->source) && a->source_step == b->source_step);
    CHECK(!strcmp(a->prepared_id, b->prepared_id) && job_err(a)->code == job_err(b)->code);
    CHECK(!strcmp(job_err(a)->text, job_err(b)->text) &&
          !strcmp(job_err(a)->field, job_err(b)->field));
    CHECK(a->err_cause == b->err_cause && a->err_rank == b->err_rank);
    CHECK(!strcmp(a->err_node, b->err_node) &&
          job_spec(a)->train.steps == job_spec(b)->train.steps);
    CHECK(job_spec(a)->parallel.form == job_spec(b)->parallel.form);
    CHECK(a->crowded == b->crowded && a->alone == b->alone);
    CHECK(a->tried_ms == b->tried_ms && a->n_left == b->n_left);
    CHECK(a->farthest.stored == b->farthest.stored);
    CHECK(a->farthest.n_names == b->farthest.n_names);
    CHECK(a->farthest.n_failed == b->farthest.n_failed);
    for (int i = 0; i < a->farthest.n_failed && i < b->farthest.n_failed; i++)
        CHECK(!memcmp(&a->farthest.failed[i], &b->farthest.failed[i], sizeof *a->farthest.failed));
    for (int i = 0; i < a->n_left && i < b->n_left; i++)
        CHECK(!memcmp(&a->left[i], &b->left[i], sizeof *a->left));
}

/* Checks the ASSIGN of an old seqd, in which a job had only one node. Also checks texts that no
 * seqd has written. */
static void test_places(void)
{
    static const char old[] = "{\"task\":\"run\",\"n_ranks\":2,\"node\":\"n1\"}";
    static const char *const damaged[] = {
        /* the list does not begin at rank 0 */
        "{\"nodes\":[{\"node\":\"a\",\"first_rank\":1,\"n_ranks\":1}]}",
        "{\"nodes\":[{\"node\":\"a\",\"first_rank\":0,\"n_ranks\":65}]}",
        "{\"nodes\":[{\"node\":\"a\",\"first_rank\":0,\"n_ranks\":0}]}",
        "{\"nodes\":[{\"node\":\"\",\"first_rank\":0,\"n_ranks\":1}]}",
        "{\"nodes\":[{\"first_rank\":0,\"n_ranks\":1}]}",
        "{\"nodes\":[1]}",
        "{\"nodes\":{}}",
        "{\"nodes\":[{\"node\":\"a\",\"first_rank\":0,\"n_ranks\":2},"
        "{\"node\":\"b\",\"first_rank\":1,\"n_ranks\":1}]}", /* overlap */
    };
    static struct event ev;
    struct job *j = job_create(1, spec_of(JOB_TRAIN));
    struct err e;
    CHECK(!job_fold(j, &(struct event){.type = EV_SUBMIT, .job = 1}, &e));
    ev = (struct event){.type = EV_ASSIGN, .job = 1, .epoch = 1};
    CHECK(!event_read(old, sizeof old - 1, &ev, &e) && !job_fold(j, &ev, &e));
    CHECK(j->n_places == 1 && j->places[0].first_rank == 0 && j->places[0].n_ranks == 2);
    CHECK(!strcmp(j->places[0].node, "n1") && job_slots(j, "n1") == 2 && job_slots(j, "n2") == 0);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        ev = (struct event){.type = EV_ASSIGN};
        CHECK_MSG(event_read(damaged[i], strlen(damaged[i]), &ev, &e) == -1 &&
                      e.code == ERR_CORRUPT,
                  "%s", damaged[i]);
    }
    job_destroy(j);
}

static void test_replay(void)
{
    int n_final = 0;
    for (int round = 0; round < 500 && !test_failures_now; round++) {
        struct job *live = job_create(1, spec_of(JOB_TRAIN)),
                   *again = job_create(1, spec_of(JOB_TRAIN));
        struct event ev = {.type = EV_SUBMIT, .job = 1, .at_ms = 1000};
        struct err e;
        CHECK(!job_fold(live, &ev, &e) && !job_fold(again, &ev, &e));
        struct event twice = {.type = EV_SUBMIT, .job = 1, .at_ms = 2000, .by = "another"};
        /* the owner can be set only once */
        CHECK(job_fold(live, &twice, &e) == -1 && !*live->owner);
        for (int i = 0; i < 60; i++) {
            static char text[EVENT_DATA_SIZE];
            static struct event back;
            random_event(&ev, live, 1000 + i);
            struct job before = *live;
            int bad = job_fold(live, &ev, &e);
            if (bad) {
                CHECK(e.code == ERR_CONFLICT && live->state == before.state);
                CHECK(live->version == before.version);
                continue;
            }
            CHECK(!job_final(before.state));
            if (ev.type == EV_STEP) continue; /* a step is not a row of the log */
            int64_t n = event_write(&ev, text, sizeof text);
            CHECK(n > 0);
            memset(&back, 0, sizeof back);
            back.type = ev.type, back.job = ev.job, back.epoch = ev.epoch, back.at_ms = ev.at_ms;
            CHECK_MSG(!event_read(text, (size_t)n, &back, &e), "%s: %s", text, e.text);
            CHECK(!strcmp(back.detail, ev.detail));
            CHECK_MSG(!job_fold(again, &back, &e), "%s", e.text);
        }
        check_same(live, again);
        bool holds = live->state >= JOB_STARTING && live->state <= JOB_STOPPING;
        CHECK(job_slots(live, NULL) == (holds && live->task == TASK_RUN ? 2 : 0));
        n_final += job_final(live->state);
        job_destroy(live);
        job_destroy(again);
    }
    CHECK_MSG(n_final > 20, "the walk never ends: %d", n_final);
}

static void fail_once(struct job *j, int cause, int64_t at)
{
    struct event assign = {
        .type = EV_ASSIGN, .node = "n", .epoch = j->epoch + 1, .task = TASK_RUN, .at_ms = at};
    struct event ev = {.type = EV_RANK_EXIT, .cause = cause, .at_ms = at};
    struct event stopped = {.type = EV_STOPPED, .at_ms = at};
    err_set(&ev.err, ERR_PEER, "it died");
    CHECK(!job_fold(j, &assign, NULL));
    ev.gives_up = cause == CAUSE_INFRASTRUCTURE && job_gives_up(j, at);
    CHECK(!job_fold(j, &ev, NULL));
    CHECK(j->state == JOB_STOPPING && !job_fold(j, &stopped, NULL));
}

static struct job *queued(void)
{
    struct job *j = job_create(1, spec_of(JOB_TRAIN));
    CHECK(!job_fold(j, &(struct event){.type = EV_SUBMIT, .at_ms = 1}, NULL));
    return j;
}

static void test_budgets(void)
{
    struct job *j = queued();
    int64_t waits[] = {0, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
    for (int i = 0; i < 9; i++) {
        fail_once(j, CAUSE_INFRASTRUCTURE, 1000);
        CHECK(j->state == JOB_QUEUED && j->restarts == 0);
        CHECK_MSG(j->not_before_ms == 1000 + waits[i], "failure %d waits %lld", i,
                  (long long)j->not_before_ms - 1000);
    }
    for (int i = 9; i < 40; i++) fail_once(j, CAUSE_INFRASTRUCTURE, 1000 + i);
    /* no number of retries ends the job, but a failure a day after the first attempt does */
    CHECK(j->state == JOB_QUEUED);
    fail_once(j, CAUSE_INFRASTRUCTURE, 1000 + JOB_RETRY_MS - 1);
    CHECK(j->state == JOB_QUEUED && !job_gives_up(j, 1000 + JOB_RETRY_MS - 1));
    fail_once(j, CAUSE_INFRASTRUCTURE, 1000 + JOB_RETRY_MS);
    CHECK(j->state == JOB_FAILED);
    job_destroy(j);

    j = queued(); /* a failure a day after the last step also ends the job, whatever event reported
                   * the step */
    fail_once(j, CAUSE_INFRASTRUCTURE, 1000);
    struct event assign = {
        .type = EV_ASSIGN, .node = "n", .epoch = 2, .task = TASK_RUN, .at_ms = 2000};
    CHECK(!job_fold(j, &assign, NULL) && !job_fold(j, &(struct event){.type = EV_READY}, NULL));
    CHECK(!job_fold(j, &(struct event){.type = EV_STEP, .step = 1, .at_ms = 5000}, NULL));
    CHECK(j->stepped_ms == 5000 && j->step_epoch == 2);
    struct event late = {.type = EV_RANK_EXIT,
                         .cause = CAUSE_INFRASTRUCTURE,
                         .at_ms = 9000 + JOB_RETRY_MS - 1,
                         .stepped_ms = 9000}; /* the step has no row in the log */
    CHECK(job_gives_up(j, 5000 + JOB_RETRY_MS) && !job_gives_up(j, 4999 + JOB_RETRY_MS));
    CHECK(!job_fold(j, &late, NULL) && j->target == JOB_QUEUED && j->stepped_ms == 9000);
    CHECK(!job_fold(j, &(struct event){.type = EV_STOPPED, .at_ms = 1}, NULL));
    fail_once(j, CAUSE_INFRASTRUCTURE, 9000 + JOB_RETRY_MS);
    CHECK(j->state == JOB_FAILED);
    job_destroy(j);

    /* The log of an old seqd, which allowed 16 retries, has no times. Its retries must still be
     * valid. */
    static const char old[] = "{\"node\":\"n1\",\"class\":\"infrastructure\",\"signal\":9,"
                              "\"code\":\"peer\",\"text\":\"x\"}";
    struct event was = {.type = EV_RANK_EXIT, .at_ms = 1000 + 3 * JOB_RETRY_MS};
    j = queued();
    fail_once(j, CAUSE_INFRASTRUCTURE, 1000);
    assign = (struct event){
        .type = EV_ASSIGN, .node = "n", .epoch = 2, .task = TASK_RUN, .at_ms = 2000};
    CHECK(!job_fold(j, &assign, NULL) && !event_read(old, sizeof old - 1, &was, NULL));
    CHECK(!job_fold(j, &was, NULL) && j->target == JOB_QUEUED);
    job_destroy(j);

    j = queued(); /* after an order to restart the job, the day of retries begins again */
    fail_once(j, CAUSE_INFRASTRUCTURE, 1000);
    CHECK(!job_fold(j, &(struct event){.type = EV_RESTART, .at_ms = 1500}, NULL));
    fail_once(j, CAUSE_INFRASTRUCTURE, 2000 + JOB_RETRY_MS);
    CHECK(j->state == JOB_QUEUED && j->tried_ms == 2000 + JOB_RETRY_MS);
    job_destroy(j);

    j = queued();
    fail_once(j, CAUSE_USER, 5);
    CHECK(j->state == JOB_QUEUED && j->restarts == 1);
    fail_once(j, CAUSE_USER, 5);
    CHECK(j->state == JOB_FAILED && j->restarts == 1); /* limits.restarts is 1 */
    job_destroy(j);

    j = queued();
    fail_once(j, CAUSE_FINAL, 5);
    CHECK(j->state == JOB_FAILED && j->restarts == 0);
    job_destroy(j);
}

/* Checks the reason of a running job. After a failed checkpoint, the reason must be this failure,
 * until a checkpoint succeeds. */
static void test_unsaved(void)
{
    struct job *j = queued();
    struct event assign = {
        .type = EV_ASSIGN, .node = "n", .epoch = 1, .task = TASK_RUN, .at_ms = 1};
    struct event note = {.type = EV_NOTE, .step = 4};
    CHECK(!job_fold(j, &assign, NULL) && !job_fold(j, &(struct event){.type = EV_READY}, NULL));
    snprintf(note.detail, sizeof note.detail, "{\"code\":\"other\",\"text\":\"x\"}");
    CHECK(!job_fold(j, &note, NULL) && !job_unsaved(j));
    for (int i = 0; i < 3; i++) {
        snprintf(note.detail, sizeof note.detail,
                 "{\"code\":\"checkpoint_failed\",\"step\":4,\"text\":\"write %*s: No space\"}",
                 i == 1 ? 400 : 1, "p");
        CHECK(!job_fold(j, &note, NULL) && job_unsaved(j));
        CHECK(strstr(j->reason, "write ") == j->reason && strlen(j->reason) < JOB_REASON_SIZE);
        struct event next = {.type = i == 2 ? EV_DONE : EV_CHECKPOINT, .step = 5, .at_ms = 1};
        CHECK(!job_fold(j, &next, NULL) && !job_unsaved(j) && !*j->reason_code);
    }
    job_destroy(j);
}

/* Returns the state in which the job ends. */
static enum job_state cancelled_after_a_failure(void)
{
    struct job *j = queued();
    struct event assign = {.type = EV_ASSIGN, .node = "n", .epoch = 1, .task = TASK_RUN};
    CHECK(!job_fold(j, &assign, NULL));
    CHECK(!job_fold(j, &(struct event){.type = EV_RANK_EXIT, .cause = CAUSE_USER}, NULL));
    CHECK(j->target == JOB_QUEUED);
    CHECK(!job_fold(j, &(struct event){.type = EV_CANCEL, .at_ms = 1}, NULL));
    CHECK(!job_fold(j, &(struct event){.type = EV_STOPPED, .at_ms = 1}, NULL));
    const enum job_state end = j->state;
    job_destroy(j);
    return end;
}

static void test_cancel_outranks(void)
{
    struct job *j = queued();
    struct event assign = {.type = EV_ASSIGN, .node = "n", .epoch = 1, .task = TASK_RUN};
    CHECK(!job_fold(j, &assign, NULL));
    CHECK(!job_fold(j, &(struct event){.type = EV_CANCEL, .at_ms = 1}, NULL));
    CHECK(!job_fold(j, &(struct event){.type = EV_RANK_EXIT, .cause = CAUSE_USER}, NULL));
    CHECK(j->restarts == 0); /* a death that was ordered does not count as a restart */
    CHECK(!job_fold(j, &(struct event){.type = EV_STOPPED, .at_ms = 1}, NULL));
    CHECK(j->state == JOB_CANCELLED);
    job_destroy(j);
    CHECK(cancelled_after_a_failure() == JOB_CANCELLED);
}

#ifdef SEQD_MUTANTS
/* Checks the injected fault. The simulator seldom cancels a job between its failure and its end,
 * so it does not find this fault. */
static void test_mutant(void)
{
    mutant_choose(MUTANT_CANCEL_LOST);
    mutant_report(MUTANT_CANCEL_LOST, cancelled_after_a_failure() != JOB_CANCELLED,
                  "a cancel after a failure");
    mutant_choose(MUTANT_NONE);
    verify_blind(MUTANT_CANCEL_LOST);
}
#endif

/* Makes a job that runs, with an attempt of epoch 1. */
static struct job *running(void)
{
    struct job *j = queued();
    CHECK(!job_fold(
        j, &(struct event){.type = EV_ASSIGN, .node = "n", .epoch = 1, .task = TASK_RUN}, NULL));
    CHECK(!job_fold(j, &(struct event){.type = EV_READY}, NULL));
    return j;
}

static void fold(struct job *j, enum job_event type)
{
    struct event ev = {
        .type = type, .at_ms = 1, .rank = -1, .cause = CAUSE_INFRASTRUCTURE, .ran_ms = 1000};
    if (type == EV_WALL_LIMIT) err_field(&ev.err, ERR_WALL_LIMIT, "limits.wall_s", "it ran 60 s");
    CHECK_MSG(!job_fold(j, &ev, NULL), "%s", job_event_name(type));
}

/* Folds requests into a running job, one after another, and checks the job's state when it has
 * stopped. */
static void test_holds(void)
{
#define N 5
    static const struct {
        enum job_event asked[N]; /* EV_SUBMIT ends the list */
        enum job_state end;
        bool saving; /* before the end */
    } cases[] = {
        {{EV_SUSPEND, EV_STOPPED}, JOB_SUSPENDED, true},
        {{EV_SUSPEND, EV_RESUME, EV_STOPPED}, JOB_QUEUED, true},
        {{EV_SUSPEND, EV_RESUME, EV_SUSPEND, EV_STOPPED}, JOB_SUSPENDED, true},
        {{EV_SUSPEND, EV_STOPPED, EV_RESUME}, JOB_QUEUED, false},
        {{EV_SUSPEND, EV_STOPPED, EV_CANCEL}, JOB_CANCELLED, false},
        {{EV_SUSPEND, EV_CANCEL, EV_STOPPED}, JOB_CANCELLED, false},
        {{EV_SUSPEND, EV_CANCEL, EV_RESUME, EV_STOPPED}, JOB_CANCELLED, false},
        {{EV_SUSPEND, EV_NODE_LOST, EV_STOPPED}, JOB_SUSPENDED, true},
        {{EV_SUSPEND, EV_DONE}, JOB_SUCCEEDED, true},
        {{EV_NODE_LOST, EV_SUSPEND, EV_STOPPED}, JOB_SUSPENDED, false},
        {{EV_NODE_LOST, EV_RESUME, EV_STOPPED}, JOB_QUEUED, false},
        {{EV_DRAIN, EV_STOPPED}, JOB_QUEUED, true},
        {{EV_DRAIN, EV_SUSPEND, EV_STOPPED}, JOB_SUSPENDED, true},
        {{EV_WALL_LIMIT, EV_STOPPED}, JOB_FAILED, true},
        {{EV_WALL_LIMIT, EV_SUSPEND, EV_STOPPED}, JOB_FAILED, true},
        {{EV_WALL_LIMIT, EV_DONE}, JOB_SUCCEEDED, true},
        {{EV_WALL_LIMIT, EV_CANCEL, EV_STOPPED}, JOB_CANCELLED, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job *j = running();
        bool saving = false;
        for (int k = 0; k < N && cases[i].asked[k] != EV_SUBMIT; k++) {
            saving = j->saving;
            fold(j, cases[i].asked[k]);
        }
        CHECK_MSG(j->state == cases[i].end && saving == cases[i].saving, "case %zu: %s, %d", i,
                  job_state_name(j->state), saving);
        CHECK(!j->saving && j->restarts == 0);
        CHECK(job_slots(j, NULL) == 0);
        if (j->state == JOB_FAILED) CHECK(job_err(j)->code == ERR_WALL_LIMIT);
        job_destroy(j);
    }
    struct job *j = queued(); /* a job that has not begun, or is starting, has nothing to save */
    fold(j, EV_SUSPEND);
    CHECK(j->state == JOB_SUSPENDED);
    struct event assign = {.type = EV_ASSIGN, .node = "n", .epoch = 1, .task = TASK_RUN};
    CHECK(job_fold(j, &assign, NULL)); /* held */
    fold(j, EV_RESUME);
    CHECK(!job_fold(j, &assign, NULL));
    fold(j, EV_SUSPEND);
    CHECK(j->state == JOB_STOPPING && j->target == JOB_SUSPENDED && !j->saving);
    job_destroy(j);
#undef N
}

/* Checks that the time in which a job is suspended does not count: a failure is retried even if
 * the job was suspended for a month before it. */
static void test_hold_stops_the_clock(void)
{
    struct job *j = running();
    CHECK(!job_fold(j, &(struct event){.type = EV_CHECKPOINT, .step = 7, .at_ms = 5000}, NULL));
    fold(j, EV_SUSPEND);
    fold(j, EV_STOPPED);
    CHECK(j->ran_ms == 1000 && j->checkpoint_step == 7);
    fold(j, EV_RESUME);
    struct event assign = {.type = EV_ASSIGN,
                           .node = "n",
                           .epoch = 2,
                           .task = TASK_RUN,
                           .at_ms = 5000 + 30 * JOB_RETRY_MS};
    CHECK(!job_fold(j, &assign, NULL));
    CHECK(!job_gives_up(j, assign.at_ms + 1000));
    job_destroy(j);
}

/* Checks that the error of a time limit names the saved step. */
static void test_wall_error(void)
{
    for (int saved = 0; saved < 2; saved++) {
        struct job *j = running();
        if (saved) CHECK(!job_fold(j, &(struct event){.type = EV_CHECKPOINT, .step = 7}, NULL));
        fold(j, EV_WALL_LIMIT);
        fold(j, EV_STOPPED);
        CHECK_STR(err_name(job_err(j)->code), "wall_limit");
        CHECK_MSG(strstr(job_err(j)->text,
                         saved ? "step 7 is saved: `seqctl continue " : "no step is saved"),
                  "%s", job_err(j)->text);
        CHECK(j->err_cause == CAUSE_FINAL && j->restarts == 0);
        job_destroy(j);
    }
}

static void test_steps(void)
{
    /* a sequence of 100 tokens, batches of 4, and 2 passes */
    struct job_spec *s = spec_of(JOB_TRAIN);
    CHECK(job_steps(s, 1) == 1);
    CHECK(job_steps(s, 400) == 2);
    CHECK(job_steps(s, 401) == 3); /* there are 5 windows in a pass and 10 in two passes; a step
                                    * has 4 */
    s->train.passes = 0;
    s->train.tokens = 801;
    CHECK(job_steps(s, 1000000) == 3);
    s->train.steps = 77;
    CHECK(job_steps(s, 1) == 77);
}

static void count(void *arg, struct job *j)
{
    *(int64_t *)arg += j->id;
}

static void count_one(void *arg, struct job *j)
{
    ++*(int *)arg;
}

/* Checks that a table that grows keeps its list of placed jobs. */
static void test_placed(void)
{
    struct jobs t;
    int n = 0;
    CHECK(!jobs_init(&t));
    for (int i = 1; i <= 2; i++) jobs_add(&t, job_create(i, spec_of(JOB_TRAIN)));
    struct job *j = jobs_find(&t, 1);
    jobs_note_placed(&t, j);
    for (int i = 3; i <= 9000; i++) jobs_add(&t, job_create(i, spec_of(JOB_TRAIN)));
    jobs_each_placed(&t, count_one, &n);
    CHECK(n == 1);
    jobs_note_placed(&t, jobs_find(&t, 2));
    jobs_remove(&t, j);
    job_destroy(j);
    n = 0;
    jobs_each_placed(&t, count_one, &n);
    CHECK(n == 1);
    jobs_fini(&t);
}

static void test_table(void)
{
    struct jobs t;
    CHECK(!jobs_init(&t));
    for (int i = 1; i <= 5000; i++) jobs_add(&t, job_create(i, spec_of(JOB_TRAIN)));
    int64_t sum = 0;
    jobs_each(&t, count, &sum);
    CHECK(t.n == 5000 && sum == 5000 * 5001 / 2);
    for (int i = 1; i <= 5000; i += 2) {
        struct job *j = jobs_find(&t, i);
        CHECK(j && j->id == i);
        jobs_remove(&t, j);
        job_destroy(j);
        CHECK(!jobs_find(&t, i));
    }
    CHECK(t.n == 2500 && jobs_find(&t, 2) && !jobs_find(&t, 5001));
    jobs_fini(&t);
}

/* Adds to the spec's text runs of zeros and of other bytes, of all lengths. */
static void random_text(struct job_spec *s)
{
    uint32_t i = s->text_used;
    s->text_used += (uint32_t)rand_r(&seed) % (SPEC_TEXT_SIZE - i);
    while (i < s->text_used) {
        const uint32_t n = (uint32_t)rand_r(&seed) % (rand_r(&seed) % 4 ? 9 : 20000);
        const bool zeros = rand_r(&seed) % 2;
        for (uint32_t k = 0; k < n && i < s->text_used; k++)
            s->text[i++] = zeros ? 0 : (char)(1 + rand_r(&seed) % 255);
    }
}

/* A job that rests has the same spec as before, also after a change. */
static void test_rest(void)
{
    static struct job_spec was;
    for (int round = 0; round < 100; round++) {
        struct job_spec *s = spec_of(JOB_TRAIN);
        if (round % 2) random_text(s);
        const size_t size = offsetof(struct job_spec, text) + s->text_used;
        memcpy(&was, s, size);
        struct job *j = job_create(1, s);
        job_set_plan(j, strdup("{\"memory\":{\"total_bytes\":77}}"));
        job_rest(j);
        CHECK(!j->spec && !j->plan && j->need->device == 77);
        CHECK(!memcmp(job_spec(j), &was, size) && !memcmp(job_spec(j), &was, size));
        job_rest(j);
        CHECK(!memcmp(job_spec(j), &was, size));
        job_spec_edit(j)->seed = was.seed = 7000 + round;
        job_rest(j);
        CHECK(!memcmp(job_spec(j), &was, size));
        job_destroy(j);
    }
}

int main(void)
{
    RUN(test_rest);
    RUN(test_places);
    RUN(test_replay);
    RUN(test_budgets);
    RUN(test_cancel_outranks);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    RUN(test_unsaved);
    RUN(test_holds);
    RUN(test_hold_stops_the_clock);
    RUN(test_wall_error);
    RUN(test_steps);
    RUN(test_placed);
    RUN(test_table);
    return test_done("seqd_jobs");
}
