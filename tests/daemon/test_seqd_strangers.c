/* test_seqd_strangers: tests the limits on the messages of a node (api/wire.h). For every kind of
 * message, a node sends a message that it may not send. The message must have no effect, and must
 * be counted. */
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "tests/lib/sim.h"
#include "worker/plan/check.h"

static const struct node *node_of(const struct sim *n)
{
    return node_find((struct nodes *)control_nodes(w.control), n->name);
}

static void say(struct sim *n, const struct msg *m)
{
    control_link_calls.message(w.control, n->name, m);
}

/* Starts job 1, epoch 2, with two ranks on each of two nodes. A third node has no rank. */
static void to_ready(struct gang **a, struct gang **b)
{
    begin();
    w.strangers = true;
    hello(A), hello(B);
    CHECK(submit(4, 0) == 1);
    play_prepare(gang_of(A, 1, 1));
    send_spool(A, gang_of(A, 1, 1));
    settle();
    *a = gang_of(A, 1, 2), *b = gang_of(B, 1, 2);
    CHECK(*a && *b && (*a)->first == 0 && (*b)->first == 2);
    play_blobs(*a), send_spool(A, *a), play_blobs(*b), send_spool(B, *b);
    play_ready(*a), send_spool(A, *a), play_ready(*b), send_spool(B, *b);
    hello(C);
    CHECK(is(1, "running"));
    CHECK(!node_of(A)->n_dropped && !node_of(B)->n_dropped && !node_of(C)->n_dropped);
}

/* ---- REPORT ---------------------------------------------------------------------------------- */

static void report(struct sim *n, int64_t seq, int type, int rank, const void *data, size_t size)
{
    char bytes[2048];
    struct rank_msg head = {RANK_ABI, (uint32_t)type, rank, (uint32_t)size};
    struct msg m = {.type = MSG_REPORT, .job = 1, .epoch = 2, .seq = seq, .data = bytes};
    memcpy(bytes, &head, sizeof head);
    if (size) memcpy(bytes + sizeof head, data, size);
    m.size = sizeof head + size;
    say(n, &m);
}

/* Checks that only a part's own node can report the part's end. */
static void test_final_record(void)
{
    struct gang *a, *b;
    const struct rank_exit end = {.rank = RANK_GANG, .exit_status = GANG_LOST};
    to_ready(&a, &b);
    report(C, 0, RANK_EXIT, RANK_GANG, &end, sizeof end);
    report(C, 1, RANK_EXIT, RANK_GANG, &end, sizeof end);
    CHECK(is(1, "running") && node_of(C)->n_dropped == 2);
    CHECK(control_reserved(w.control, "a") == 2 && control_reserved(w.control, "b") == 2);
    finish();
}

/* Checks that impossible steps are ignored. Many large steps must not overflow the figures that
 * are shown. */
static void test_wrong_steps(void)
{
    static const struct rank_step wrong[] = {
        {.step = INT64_MIN},       {.step = -1},
        {.step = INT64_MAX},       {.step = 1, .tokens = INT64_MAX},
        {.step = 1, .tokens = -1}, {.step = 1, .step_us = INT64_MAX}};
    struct rank_step large = {.tokens = (int64_t)1 << 53, .step_us = (int64_t)1 << 53};
    struct gang *a, *b;
    to_ready(&a, &b);
    int64_t seq = a->n_records;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        report(A, ++seq, RANK_STEP, 0, &wrong[i], sizeof *wrong);
    const struct rank_progress endless = {
        .total = (double)job(1)->steps, .tokens = INT64_MAX, .elapsed_us = INT64_MAX};
    report(A, ++seq, RANK_PROGRESS, 0, &endless, sizeof endless);
    CHECK(job(1)->step == 0 && job(1)->step_epoch != 2 && job(1)->progress.tokens == 0);
    for (large.step = 1; large.step <= 1100; large.step++)
        report(A, ++seq, RANK_STEP, 0, &large, sizeof large);
    CHECK(job(1)->step == 1100 && is(1, "running"));
    CHECK(job(1)->progress.tokens > 0 && job(1)->progress.elapsed_us > 0);
    finish();
}

/* Checks the metrics of a step that learns preferences, and of the same record from a program that
 * does not know them. */
static void test_pairs_of_steps(void)
{
    static const char want[] = "\"preferences\":{\"pairs\":3,\"reward_chosen\":0.5,"
                               "\"reward_rejected\":-0.25,\"margin\":0.75,\"accuracy\":1}";
    const struct rank_step step = {.step = 1,
                                   .ledger_ok = 1,
                                   .pairs = 3,
                                   .reward_chosen = 0.5,
                                   .reward_rejected = -0.25,
                                   .accuracy = 1};
    struct gang *a, *b;
    to_ready(&a, &b);
    int64_t seq = a->n_records;
    report(A, ++seq, RANK_STEP, 0, &step, sizeof step);
    CHECK_MSG(job(1)->metrics && strstr(job(1)->metrics, want), "%s", job(1)->metrics);
    report(A, ++seq, RANK_STEP, 0, &step, RANK_STEP_BEFORE);
    CHECK_MSG(job(1)->metrics && !strstr(job(1)->metrics, "preferences"), "%s", job(1)->metrics);
    finish();
}

/* Checks a node's spool that has records about ranks of other nodes. These records must be
 * dropped, and the records after them must be read. */
static void test_other_ranks(void)
{
    struct gang *a, *b;
    const struct rank_exit theirs = {.rank = 0, .signal = SIGSEGV};
    const struct rank_exit gang = {.rank = RANK_GANG};
    const struct rank_step step = {.step = 7, .loss = 1, .ledger_ok = 1};
    const struct rank_fail fail = {.code = ERR_INVALID, .text = "not mine to say"};
    struct {
        struct rank_event ev;
        char json[14];
    } saved = {{.type = EV_CHECKPOINT, .step = 7}, "{\"path\":\"/x\"}"};
    to_ready(&a, &b);
    int64_t seq = b->n_records;
    /* the record's head and its content name different ranks */
    report(B, ++seq, RANK_EXIT, 2, &theirs, sizeof theirs);
    report(B, ++seq, RANK_EXIT, 2, &gang, sizeof gang);
    report(B, ++seq, RANK_EXIT, 0, &theirs, sizeof theirs);
    report(B, ++seq, RANK_FAIL, 1, &fail, sizeof fail);
    report(B, ++seq, RANK_READY, RANK_GANG, NULL, 0);
    report(B, ++seq, RANK_STEP, 2, &step, sizeof step); /* only rank 0 may report steps */
    report(B, ++seq, RANK_RESULT, 3, "{\"loss\":0}", 10);
    report(B, ++seq, RANK_EVENT, 2, &saved, sizeof saved - 1);
    report(B, ++seq, RANK_BLOB, 1, "blob", 4);
    CHECK(is(1, "running") && job(1)->step == 0 && !job(1)->result && !job(1)->checkpoint_step);
    CHECK_MSG(node_of(B)->n_dropped == 9, "%lld", (long long)node_of(B)->n_dropped);
    const struct rank_fail own = {.code = ERR_INVALID, .text = "mine"};
    report(B, ++seq, RANK_FAIL, 3, &own, sizeof own);
    CHECK(is(1, "stopping") || is(1, "failed"));
    CHECK_STR(job(1) ? job_err(job(1))->text : "mine", "mine");
    finish();
}

/* Checks the result of a preparation, which a node may invent. It must be checked because its id
 * becomes a path and its sizes are multiplied. */
static void test_prepared_result(void)
{
    static const char *const bad[] = {
        "{\"prepared_id\":\"../../etc\",\"n_tokens\":1000}",
        "{\"prepared_id\":\"ABC\",\"n_tokens\":1000}",
        "{\"prepared_id\":\"abc\",\"n_tokens\":4611686018427387904}",
        "{\"prepared_id\":\"abc\",\"n_tokens\":9,\"samples_per_pass\":4611686018427387904}",
        "{\"prepared_id\":\"abc\",\"n_tokens\":9,\"samples_per_pass\":-1}",
    };
    for (int i = 0; i < 5; i++) {
        begin();
        hello(A);
        submit(1, 0);
        struct gang *p = gang_of(A, 1, 1);
        record(p, RANK_RESULT, 0, NULL, 0, bad[i]);
        send_spool(A, p);
        settle();
        CHECK_MSG(job(1) && !*job(1)->prepared_id, "%s", bad[i]);
        CHECK_MSG(strstr(job_err(job(1))->text, "cannot be right"), "%s", job_err(job(1))->text);
        finish();
    }
}

/* ---- late reports of a node about attempts that have ended
 * ------------------------------------- */

static void log_of(struct sim *n, int64_t epoch)
{
    say(n, &(struct msg){.type = MSG_LOG, .job = 1, .epoch = epoch, .data = "late", .size = 4});
}

static void progress_of(struct sim *n, int64_t epoch)
{
    const struct {
        struct rank_msg head;
        struct rank_progress p;
    } late = {{RANK_ABI, RANK_PROGRESS, 0, sizeof late.p}, {.unit = PROGRESS_STEPS, .total = 9}};
    say(n, &(struct msg){
               .type = MSG_REPORT, .job = 1, .epoch = epoch, .data = &late, .size = sizeof late});
}

/* Checks a node that had a part of an attempt and was not told that the attempt has ended. The
 * node must not count as a stranger, also if the attempt was given up or seqd was restarted. A
 * node that had no part must count as a stranger. */
static void test_late(void)
{
    struct gang *a, *b;
    to_ready(&a, &b);
    progress_of(A, 1), log_of(A, 1); /* this node prepared the data */
    CHECK(node_of(A)->n_dropped == 0);
    progress_of(B, 1), log_of(B, 1), progress_of(C, 1);
    CHECK(node_of(B)->n_dropped == 2 && node_of(C)->n_dropped == 1);
    progress_of(A, 3), log_of(A, 3); /* epoch 3 has not begun yet */
    CHECK(node_of(A)->n_dropped == 2);
    w.obeys = false;
    goodbye(B);
    pass(NODE_LOST_MS + 1001);
    CHECK(is(1, "stopping") && job(1)->attempt->parts[1].lost);
    hello(B);
    progress_of(B, 2), log_of(B, 2); /* the node was given up, and comes back */
    CHECK(node_of(B)->n_dropped == 2 && is(1, "stopping"));
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0), send_spool(A, a);
    settle();
    CHECK(!job(1)->attempt || job(1)->attempt->epoch == 3);
    progress_of(B, 2), log_of(B, 2), progress_of(A, 2);
    CHECK(node_of(B)->n_dropped == 2 && node_of(A)->n_dropped == 2);
    A->up = B->up = C->up = false;
    close_seqd();
    open_seqd();
    hello(A), hello(B), hello(C);
    progress_of(B, 2), log_of(B, 2); /* the node's HELLO had this attempt */
    CHECK(node_of(B)->n_dropped == 0);
    progress_of(C, 2);
    CHECK(node_of(C)->n_dropped == 1);
    goodbye(B);
    B->instance[0] = 9;
    B->n_gangs = 0;
    hello(B);
    progress_of(B, 2); /* the same report from a different machine with the name of the node */
    CHECK(node_of(B)->n_dropped == 1);
    finish();
}

/* ---- LOG ------------------------------------------------------------------------------------- */

static void test_log(void)
{
    struct gang *a, *b;
    char back[16];
    struct msg m = {.type = MSG_LOG, .job = 1, .epoch = 1, .rank = 0, .data = "evil", .size = 4};
    to_ready(&a, &b);
    say(B, &m); /* the attempt has ended, and was on a different node */
    say(C, &m);
    m.epoch = 2;
    say(C, &m), say(B, &m); /* the rank is not on the sender's node */
    m.epoch = 3;
    say(A, &m); /* the attempt has not begun */
    m.job = 2;
    say(A, &m);
    for (int e = 1; e <= 3; e++)
        CHECK(logs_read(w.logs, 1, e, 0, 0, back, sizeof back, &(struct err){0}) == -1);
    CHECK(node_of(A)->n_dropped == 2 && node_of(B)->n_dropped == 2 && node_of(C)->n_dropped == 2);
    m.job = 1, m.epoch = 2;
    say(A, &m);
    CHECK(logs_read(w.logs, 1, 2, 0, 0, back, sizeof back, &(struct err){0}) == 4);
    finish();
}

/* ---- HELLO, HEARTBEAT, PROFILE --------------------------------------------------------------- */

static void test_about_itself(void)
{
    struct gang *a, *b;
    to_ready(&a, &b);
    A->n_gpus = 1;
    snprintf(A->gpu[0].uuid, sizeof A->gpu[0].uuid, "GPU-1");
    heartbeat(A);
    goodbye(C);
    C->gang[C->n_gangs++] = (struct gang){.job = 1, .epoch = 2, .task = TASK_RUN, .n_local = 2};
    C->n_gpus = 1;
    C->gpu[0] = A->gpu[0];
    C->gpu[0].health = GPU_XID;
    w.obeys = false;
    hello(C); /* C claims that it runs a's gang, and that a's GPU is broken */
    heartbeat(C);
    struct msg m = {.type = MSG_PROFILE, .profile = {.hop = 1e-6}};
    say(C, &m);
    CHECK(is(1, "running") && job(1)->attempt->parts[0].place.n_ranks == 2);
    CHECK(control_reserved(w.control, "a") == 2 && control_reserved(w.control, "c") == 2);
    CHECK(node_of(A)->gpu[0].health == GPU_OK && node_of(A)->profile.hop == 0);
    play_run(a), send_spool(A, a);
    play_run(b), send_spool(B, b);
    CHECK(is(1, "succeeded"));
    finish();
}

/* ---- DESCRIBED, FETCHED ---------------------------------------------------------------------- */

static int n_answers;
static char answer[8];

static void on_answer(void *arg, const struct msg *m, const struct err *e)
{
    n_answers++;
    if (m) memcpy(answer, m->data, m->size);
}

static void test_answers(void)
{
    struct gang *a, *b;
    to_ready(&a, &b);
    struct msg ask = {.type = MSG_FETCH, .job = 1, .path = "x", .offset = 4};
    n_answers = 0;
    control_ask(w.control, "a", &ask, on_answer, NULL);
    struct msg m = {.type = MSG_FETCHED, .request = 1, .offset = 4, .data = "evil", .size = 4};
    say(B, &m); /* this node was not asked */
    m.request = 2;
    say(A, &m); /* an answer to no question */
    m.request = 1, m.offset = 0;
    say(A, &m); /* the node sends other bytes than were requested */
    m.type = MSG_DESCRIBED;
    say(A, &m);
    CHECK(n_answers == 0 && node_of(A)->n_dropped == 3 && node_of(B)->n_dropped == 1);
    m.type = MSG_FETCHED, m.offset = 4, m.data = "good";
    say(A, &m);
    CHECK(n_answers == 1);
    CHECK_STR(answer, "good");
    say(A, &m); /* the same answer is sent a second time */
    CHECK(n_answers == 1 && node_of(A)->n_dropped == 4);
    finish();
}

/* ---- the name -------------------------------------------------------------------------------- */

/* Checks a stranger that uses the name of a node that is not connected. It must get no part of
 * that node's gangs. */
static void test_taken_name(void)
{
    struct gang *a, *b;
    const struct rank_exit end = {.rank = RANK_GANG, .exit_status = GANG_DONE};
    to_ready(&a, &b);
    w.obeys = false;
    goodbye(B);
    B->instance[0] = 9;
    B->n_gangs = 0;
    hello(B);
    settle();
    CHECK(is(1, "stopping") && job(1)->err_cause == CAUSE_INFRASTRUCTURE);
    CHECK_STR(job_err(job(1))->text, "node b was replaced by another instance of that name");
    /* the stranger must not be told to run that part */
    CHECK(job(1)->attempt->parts[1].lost && B->n_gangs == 0);
    report(B, b->n_records + 1, RANK_EXIT, RANK_GANG, &end, sizeof end);
    CHECK(node_of(B)->n_dropped == 1 && is(1, "stopping"));
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0), send_spool(A, a);
    settle();
    CHECK(job(1)->epoch == 3 || job(1)->state == JOB_QUEUED);
    finish();

    to_ready(&a, &b); /* the same instance comes back, and its gang continues */
    goodbye(B);
    hello(B);
    CHECK(is(1, "running") && !job(1)->attempt->parts[1].lost);
    finish();
}

/* Checks a stranger with the name of a node after a restart of seqd. It must get no part of the
 * node's gangs, even if new work begins on the stranger. seqd knows the right instance, because
 * the log has the instance of each part of an attempt. */
static void test_taken_over_restart(void)
{
    struct gang *a, *b;
    to_ready(&a, &b);
    w.obeys = false;
    A->up = B->up = C->up = false;
    close_seqd();
    open_seqd();
    B->instance[0] = 9;
    B->n_gangs = 0;
    hello(A), hello(B), hello(C);
    settle();
    CHECK(is(1, "stopping") && job(1)->attempt->parts[1].lost && B->n_gangs == 0);
    CHECK_STR(job_err(job(1))->text, "node b was replaced by another instance of that name");
    CHECK(!job(1)->attempt->parts[0].lost);
    finish();

    to_ready(&a, &b); /* the same instances continue where they were */
    A->up = B->up = C->up = false;
    close_seqd();
    open_seqd();
    hello(A), hello(B), hello(C);
    settle();
    CHECK(is(1, "running") && !job(1)->attempt->parts[1].lost);
    finish();

    begin(); /* the job is on one node, so its event has no list of nodes */
    hello(A);
    w.obeys = false;
    CHECK(submit(1, 0) == 1 && is(1, "starting"));
    A->up = false;
    close_seqd();
    open_seqd();
    A->instance[0] = 9;
    A->n_gangs = 0;
    hello(A);
    settle();
    CHECK(A->n_gangs == 0 || A->gang[0].epoch == 2);
    CHECK(strstr(events(1), "was replaced by another instance"));
    finish();
}

/* ---- many of them ---------------------------------------------------------------------------- */

/* Connects a node with a new name, and disconnects it again unless `stay` is set. Returns whether
 * it was accepted. */
static bool visit(int i, bool stay)
{
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 1};
    snprintf(m.node, sizeof m.node, "n-%d", i);
    pass(1001);
    if (control_link_calls.admit(w.control, &m)) return false;
    control_link_calls.up(w.control, m.node, &m);
    CHECK(node_find((struct nodes *)control_nodes(w.control), m.node) != NULL);
    if (!stay) control_link_calls.down(w.control, m.node, "", 0);
    return true;
}

static bool known(int i)
{
    char name[NODE_NAME];
    snprintf(name, sizeof name, "n-%d", i);
    return node_find((struct nodes *)control_nodes(w.control), name) != NULL;
}

/* Checks that the table has room for NODE_MAX names at a time. More nodes may connect one after
 * another. */
static void test_many_names(void)
{
    begin();
    hello(A);
    submit(2, 0);
    play_prepare(gang_of(A, 1, 1)), send_spool(A, gang_of(A, 1, 1));
    settle();
    struct gang *g = gang_of(A, 1, 2);
    play_blobs(g), send_spool(A, g), play_ready(g), send_spool(A, g);
    rec_event(g, 0, EV_CHECKPOINT, 1, "{}"), send_spool(A, g);
    goodbye(A);
    /* this node has a checkpoint, and has been disconnected for the longest time */
    pass(NODE_LOST_MS + 1001);
    for (int i = 0; i < NODE_MAX - 1; i++) {
        struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 1};
        snprintf(m.node, sizeof m.node, "n-%d", i);
        w.now++;
        loop_turn(w.loop, 0);
        CHECK(!control_link_calls.admit(w.control, &m));
        control_link_calls.up(w.control, m.node, &m);
        if (i < 3) control_link_calls.down(w.control, m.node, "", 0);
    }
    CHECK(control_nodes(w.control)->n == NODE_MAX && node_of(A) && known(0));
    CHECK(visit(9000, false) && node_of(A) && !known(0) && !known(2) && known(3));
    CHECK(control_nodes(w.control)->n == NODE_MAX - 2);
    CHECK(visit(9001, true) && visit(9002, true) && known(9000));
    CHECK(visit(9003, true) && !known(9000));
    CHECK(!visit(9004, true)); /* all remaining nodes are up, or have a checkpoint */
    CHECK(node_of(A) && known(9001));
    hello(A); /* a known node comes back */
    CHECK(node_of(A)->up && control_nodes(w.control)->n == NODE_MAX);
    finish();
}

static const char *admit(const char *kind, int i, bool stay)
{
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 1};
    snprintf(m.node, sizeof m.node, "%s-%d", kind, i);
    const char *why = control_link_calls.admit(w.control, &m);
    if (!why) control_link_calls.up(w.control, m.node, &m);
    if (!why && !stay) control_link_calls.down(w.control, m.node, "", 0);
    return why;
}

/* Checks that as many other names as the table has take the place of names that are down, at one
 * time. Every name must be found by itself afterwards. */
static void test_all_names_change(void)
{
    char name[NODE_NAME];
    begin();
    const struct nodes *t = control_nodes(w.control);
    for (int i = 0; i < NODE_MAX; i++) CHECK(!admit("old", i, i == 7));
    for (int i = 0; i < NODE_MAX - 1; i++) CHECK(!admit("new", i, true));
    const char *why = admit("new", NODE_MAX, true);
    CHECK(why && strstr(why, "less than a second ago"));
    w.now += 1001;
    loop_turn(w.loop, 0);
    why = admit("new", NODE_MAX, true);
    CHECK(why && strstr(why, "each is up or holds"));
    CHECK(t->n == NODE_MAX);
    for (int i = 0; i < NODE_MAX - 1; i++) {
        snprintf(name, sizeof name, "new-%d", i);
        const struct node *n = node_find((struct nodes *)t, name);
        CHECK(n && n->up && !strcmp(n->name, name));
    }
    CHECK(node_find((struct nodes *)t, "old-7") && !node_find((struct nodes *)t, "old-8"));
    finish();
}

/* Checks a node whose files a queued job needs. seqd must not forget the node, because the job
 * cannot be placed on any other node. */
static void test_source_is_known(void)
{
    begin();
    submit_source = "b";
    CHECK(submit(1, 0) == 1);
    submit_source = NULL;
    CHECK(node_of(B) && control_nodes(w.control)->n == 1);
    pass(1001); /* this node has been down for the longest time */
    for (int i = 1; i < NODE_MAX; i++) {
        struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 1};
        snprintf(m.node, sizeof m.node, "n-%d", i);
        control_link_calls.up(w.control, m.node, &m);
        if (i == 1) control_link_calls.down(w.control, m.node, "", 0);
    }
    CHECK(control_nodes(w.control)->n == NODE_MAX && known(1));
    CHECK(visit(9000, true) && node_of(B) && !known(1));
    CHECK(!visit(9001, true) && node_of(B));
    CHECK(is(1, "queued") && strstr(job(1)->reason, "node b"));
    hello(B);
    pass(1001);
    CHECK(!is(1, "queued"));
    CHECK_STR(job(1)->node, "b");
    finish();
}

static int n_lists, n_listed, n_open; /* n_open counts lists that are not at their end */

static void hear_lists(const char *name, const struct msg *m)
{
    if (m->type != MSG_EXPECT || strcmp(name, "big")) return;
    CHECK(m->n_attempts <= WIRE_ATTEMPTS);
    n_lists++;
    n_listed += m->n_attempts;
    n_open += m->more;
}

/* Checks that all attempts that a node should have are listed, in as many messages as needed. An
 * attempt that is not listed would be stopped by the node. */
static void test_long_list(void)
{
    static const char json[] =
        "{\"kind\":\"generate\",\"model\":{\"config\":{\"hidden_size\":64,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"intermediate_size\":128}},"
        "\"input\":{\"prompt\":\"a\"}}";
    static struct job_spec s;
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .node = "big", .n_slots = WIRE_ATTEMPTS};
    struct err e = {0};
    begin();
    CHECK_MSG(!json_spec_read(json, strlen(json), JSON_FOR_PEOPLE, &s, &e), "%s", e.text);
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    for (int i = 0; i < WIRE_ATTEMPTS; i++)
        commit_submit(control_commits(w.control), &(struct commit_new){.spec = &s, .plan = "{}"},
                      on_done, NULL);
    submit(1, 0); /* this job prepares its data while the other jobs run */
    control_link_calls.up(w.control, "big", &m);
    settle();
    n_lists = n_listed = n_open = 0;
    w.hear = hear_lists;
    pass(30001);
    CHECK_MSG(n_lists == 2 && n_open == 1, "%d messages, %d of them open", n_lists, n_open);
    CHECK_MSG(n_listed == WIRE_ATTEMPTS + 1, "%d attempts", n_listed);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_final_record);
    RUN(test_wrong_steps);
    RUN(test_pairs_of_steps);
    RUN(test_other_ranks);
    RUN(test_prepared_result);
    RUN(test_late);
    RUN(test_log);
    RUN(test_about_itself);
    RUN(test_answers);
    RUN(test_taken_name);
    RUN(test_taken_over_restart);
    RUN(test_many_names);
    RUN(test_all_names_change);
    RUN(test_source_is_known);
    RUN(test_long_list);
    return test_done("seqd_strangers");
}
