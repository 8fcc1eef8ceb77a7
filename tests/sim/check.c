/* check.c: the rules that must hold. The checker has its own table of transitions and its own
 * small model. It reads the committed rows directly from SQLite, and is told the replies to
 * clients and the acts of gangs. */
#include <sqlite3.h>
#include "api/core/job_state.h"
#include "tests/sim/sim.h"

enum { PLACES = 8, CALM_ASSIGNS = 50, ERRAND = 128 << 20 };

struct model {
    int state, target;
    int64_t version, epoch;
    int task, n_ranks, n_places;
    bool gpus;
    struct {
        char node[8];
        int first, n_ranks;
        bool lost, away;
    } place[PLACES];
    char gpu[PLACES][GPU_UUID_SIZE];
    int restarts, max_restarts;
    int64_t rank_size; /* the number of bytes that a rank needs on its node according to the stored
                        * plan */
    bool tainted, acked, cancel_acked, whole;
    int64_t shown_version, step_epoch, assign_ms;
    int64_t read_epoch; /* the epoch when the job was last checked */
    int calm_assigns;
    int shown_state;
    char key[32];
};

static sqlite3 *db;
static int64_t n_cut_logs;
static int db_life;
static struct model models[SIM_JOBS + 64];
static int64_t n_models;
static int64_t last_row, last_metric, n_rows, known_jobs;
static uint64_t rows_hash;
static bool used[1 << 17];
/* an answer has reported that the node is cordoned, and no order about the node has been sent
 * after it */
static bool cordoned[SIM_NODES];

void check_reset(void)
{
    check_close();
    memset(models, 0, sizeof models);
    memset(used, 0, sizeof used);
    memset(cordoned, 0, sizeof cordoned);
    n_models = last_row = last_metric = n_rows = known_jobs = 0;
    rows_hash = 0;
}

void check_close(void)
{
    sqlite3_close(db);
    db = NULL;
}

static struct model *model_of(int64_t job)
{
    if (job < 1 || job >= (int64_t)(sizeof models / sizeof *models)) return NULL;
    if (job > n_models) n_models = job;
    return &models[job];
}

void check_tainted(int64_t job)
{
    struct model *m = model_of(job);
    if (m) m->tainted = true;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *value(const char *json, const char *key)
{
    char want[48];
    snprintf(want, sizeof want, "\"%s\":", key);
    const char *at = strstr(json, want);
    return at ? at + strlen(want) : NULL;
}

static int64_t number(const char *json, const char *key)
{
    const char *at = value(json, key);
    return at ? strtoll(at, NULL, 10) : 0;
}

static bool is_word(const char *json, const char *key, const char *word)
{
    const char *at = value(json, key);
    const size_t n = strlen(word);
    return at && at[0] == '"' && !strncmp(at + 1, word, n) && at[1 + n] == '"';
}

static void word(const char *json, const char *key, char *out, size_t size)
{
    const char *at = value(json, key);
    *out = 0;
    if (at && *at == '"') snprintf(out, size, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
}

/* ---- transitions: the test's own copy of the table ------------------------------------------- */

static const struct {
    const char *from, *events, *to;
} table[] = {
    {"queued", " assign ", "starting"},
    {"queued", " cancel ", "cancelled"},
    {"queued", " restart ", "queued"},
    {"queued", " suspend ", "suspended"},
    {"queued", " unmet ", "failed"},
    {"suspended", " resume ", "queued"},
    {"suspended", " cancel ", "cancelled"},
    {"starting", " prepared ", "queued"},
    {"starting", " ready ", "running"},
    {"starting", " note away back ", "starting"},
    {"starting", " rank_exit node_lost start_timeout cancel suspend drain ", "stopping"},
    {"running", " checkpoint checkpoint_removed artifact eval verified note ", "running"},
    {"running", " wall_warning away back ", "running"},
    {"running", " rank_exit node_lost hang cancel suspend drain wall_limit ", "stopping"},
    {"running", " done ", "succeeded"},
    {"stopping", " prepared checkpoint checkpoint_removed artifact eval verified note ",
     "stopping"},
    {"stopping", " rank_exit node_lost cancel suspend resume back give_up ", "stopping"},
    {"stopping", " reached failed_at ", "stopping"},
    {"stopping", " done ", "succeeded"},
    {"stopping", " stopped ", "target"},
};

static int state_named(const char *name)
{
    for (int i = 0; i < JOB_STATE_N; i++)
        if (!strcmp(job_state_name((enum job_state)i), name)) return i;
    return -1;
}

static int next_state(const struct model *m, const char *event)
{
    char want[32];
    snprintf(want, sizeof want, " %s ", event);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].from, job_state_name((enum job_state)m->state)) &&
            strstr(table[i].events, want))
            return strcmp(table[i].to, "target") ? state_named(table[i].to) : m->target;
    return -1;
}

static bool placed(const struct model *m)
{
    return m->version &&
           (m->state == JOB_STARTING || m->state == JOB_RUNNING || m->state == JOB_STOPPING);
}

/* ---- one row --------------------------------------------------------------------------------- */

struct row {
    int64_t seq, job, epoch;
    enum job_event type;
    const char *data;
};

static void take_places(struct model *m, const struct row *r)
{
    const char *at = strstr(r->data, "\"nodes\":[");
    const int size = models[r->job].n_ranks;
    m->n_places = 0;
    if (!at) {
        word(r->data, "node", m->place[0].node, sizeof m->place[0].node);
        m->place[0].first = 0;
        m->place[0].n_ranks = size;
        m->place[0].lost = m->place[0].away = false;
        m->n_places = 1;
        return;
    }
    for (at += 9; *at == '{' && m->n_places < PLACES; at += at[1] == ',' ? 2 : 1) {
        word(at, "node", m->place[m->n_places].node, sizeof m->place[0].node);
        m->place[m->n_places].first = (int)number(at, "first_rank");
        m->place[m->n_places].n_ranks = (int)number(at, "n_ranks");
        m->place[m->n_places].lost = m->place[m->n_places].away = false;
        m->n_places++;
        at = strchr(at, '}');
        if (!at) return;
    }
}

static void take_gpus(struct model *m, const struct row *r)
{
    const char *at = strstr(r->data, "\"gpus\":[");
    memset(m->gpu, 0, sizeof m->gpu);
    m->gpus = at != NULL;
    for (int i = 0; at && i < PLACES && (at = strchr(at + (i ? 0 : 7), '"')); i++) {
        const size_t n = strcspn(at + 1, "\"");
        snprintf(m->gpu[i], GPU_UUID_SIZE, "%.*s", (int)n, at + 1);
        at += n + 2;
        if (*at == ']') break;
    }
}

static int slots_on(const char *node)
{
    int n = 0;
    for (int64_t j = 1; j <= n_models; j++)
        for (int i = 0;
             placed(&models[j]) && models[j].task && !models[j].gpus && i < models[j].n_places; i++)
            if (!strcmp(models[j].place[i].node, node)) n += models[j].place[i].n_ranks;
    return n;
}

/* Returns the number of bytes that attempts use on a node. A preparation uses ERRAND bytes.
 * *n_errands is the number of preparations on the node. */
static int64_t memory_on(const char *node, int *n_errands)
{
    int64_t sum = 0;
    *n_errands = 0;
    for (int64_t j = 1; j <= n_models; j++)
        for (int i = 0; placed(&models[j]) && i < models[j].n_places; i++) {
            if (strcmp(models[j].place[i].node, node)) continue;
            const bool runs = models[j].task;
            *n_errands += !runs;
            sum += runs ? models[j].place[i].n_ranks * models[j].rank_size : ERRAND;
        }
    return sum;
}

static void check_memory(int64_t job)
{
    for (int k = 0; k < SIM_LIAR; k++) {
        int n_errands;
        const int64_t held = memory_on(node_name(k), &n_errands);
        if (held > node_memory(k) && !(n_errands == 1 && held == ERRAND))
            sim_broken("memory", job, "%lld bytes are held of %s, which has %lld", (long long)held,
                       node_name(k), (long long)node_memory(k));
    }
}

static void check_room(const struct model *m, int64_t job)
{
    check_memory(job);
    for (int k = 0; k < SIM_NODES; k++)
        if (slots_on(node_name(k)) > node_slots(k))
            sim_broken("slots", job, "jobs hold %d slots of %s, which has %d",
                       slots_on(node_name(k)), node_name(k), node_slots(k));
    for (int64_t j = 1; j <= n_models && m->gpus; j++)
        for (int i = 0; i < PLACES && placed(&models[j]) && models[j].gpus && &models[j] != m; i++)
            for (int k = 0; k < PLACES && *models[j].gpu[i]; k++)
                if (!strcmp(models[j].gpu[i], m->gpu[k]))
                    sim_broken("gpu", job, "GPU %s is held by jobs %lld and %lld", m->gpu[k],
                               (long long)j, (long long)job);
}

static void take_assign(struct model *m, const struct row *r)
{
    if (r->epoch != m->epoch + 1)
        sim_broken("epoch", r->job, "epoch %lld follows %lld", (long long)r->epoch,
                   (long long)m->epoch);
    m->epoch = r->epoch;
    m->assign_ms = sim_now;
    if (sim_calm && ++m->calm_assigns > CALM_ASSIGNS)
        sim_broken("spin", r->job, "job %lld is begun again and again, and nothing fails",
                   (long long)r->job);
    m->task = is_word(r->data, "task", "run");
    m->n_ranks = (int)number(r->data, "n_ranks");
    take_places(m, r);
    take_gpus(m, r);
    check_room(m, r->job);
    for (int i = 0; i < m->n_places; i++)
        for (int k = 0; k < SIM_NODES; k++)
            if (cordoned[k] && !strcmp(m->place[i].node, node_name(k)))
                sim_broken("cordon", r->job, "job %lld begins on %s, which is said to be cordoned",
                           (long long)r->job, node_name(k));
}

/* Processes an event that a node has become silent or is connected again. The silence of a node
 * alone must not fence an attempt. */
static void take_away(struct model *m, const struct row *r)
{
    char node[8];
    word(r->data, "node", node, sizeof node);
    const bool alive = m->state == JOB_STARTING || m->state == JOB_RUNNING;
    const bool silent = strstr(r->data, "has not been seen") != NULL;
    for (int i = 0; i < m->n_places; i++) {
        if (strcmp(m->place[i].node, node)) continue;
        if (r->type != EV_NODE_LOST && m->place[i].away == (r->type == EV_AWAY))
            sim_broken("away", r->job, "node %s of job %lld is %s twice", node, (long long)r->job,
                       m->place[i].away ? "away" : "back");
        if (r->type == EV_NODE_LOST && alive && silent && !m->place[i].away)
            sim_broken("away", r->job, "job %lld is fenced on %s, which was silent and not away",
                       (long long)r->job, node);
        m->place[i].away = r->type == EV_AWAY;
    }
}

static void take_failure(struct model *m, const struct row *r)
{
    const bool user = is_word(r->data, "class", "user"), last = is_word(r->data, "class", "final");
    char node[8];
    word(r->data, "node", node, sizeof node);
    for (int i = 0; i < m->n_places && r->type == EV_NODE_LOST; i++)
        if (!strcmp(m->place[i].node, node)) m->place[i].lost = true;
    if ((user || last) && !m->tainted && !gang_faults(r->job))
        sim_broken("blame", r->job, "job %lld is blamed for what it did not do: %.300s",
                   (long long)r->job, r->data);
    if (m->state == JOB_STOPPING) return; /* the first failure counts */
    m->target = last || value(r->data, "gives_up") ? JOB_FAILED : JOB_QUEUED;
    if (user && m->restarts >= m->max_restarts) m->target = JOB_FAILED;
    if (user && m->restarts < m->max_restarts) m->restarts++;
}

static void take_product(struct model *m, const struct row *r)
{
    const int64_t nonce = number(r->data, "nonce");
    if (m->tainted) return;
    if (m->place[0].lost)
        sim_broken("fenced", r->job, "epoch %lld of job %lld was given up on %s: %.200s",
                   (long long)r->epoch, (long long)r->job, m->place[0].node, r->data);
    if (!gang_said(nonce, r->job, r->epoch, EV_CHECKPOINT))
        sim_broken("false", r->job, "no rank of job %lld said in epoch %lld: %.200s",
                   (long long)r->job, (long long)r->epoch, r->data);
    else if (used[nonce])
        sim_broken("again", r->job, "taken twice: %.200s", r->data);
    else
        used[nonce] = true;
}

/* Checks that no process of the attempt is alive, except on nodes that were given up. */
static void check_stopped(const struct model *m, const struct row *r)
{
    for (int i = 0; i < m->n_places && !m->tainted; i++)
        if (!m->place[i].lost && gang_part_alive(r->job, r->epoch, m->place[i].node))
            sim_broken("stopped", r->job, "epoch %lld of job %lld is over and runs on %s",
                       (long long)r->epoch, (long long)r->job, m->place[i].node);
}

static void check_done(const struct model *m, const struct row *r)
{
    if (m->tainted) return;
    if (!gang_done(r->job, r->epoch))
        sim_broken("done", r->job, "job %lld is done, its ranks are not", (long long)r->job);
    for (int k = 0; k < m->n_ranks; k++) {
        const int64_t here = seqd_log_size(r->job, r->epoch, k),
                      there = gang_log_size(r->job, r->epoch, k);
        /* While the disk is full, the remaining space is only for events. */
        if (here < there && seqd_full_ms() >= m->assign_ms)
            n_cut_logs++;
        else if (here != there)
            sim_broken("log", r->job, "job %lld is done with %lld of %lld bytes of rank %d's log",
                       (long long)r->job, (long long)here, (long long)there, k);
    }
}

/* Checks that every step and checkpoint that rank 0 of a finished attempt reported is stored. */
static void check_whole(void)
{
    for (int64_t j = 1; j <= n_models; j++) {
        struct model *m = &models[j];
        if (m->state != JOB_SUCCEEDED || m->tainted || m->whole) continue;
        m->whole = true;
        for (int64_t n = 0; (n = gang_next_said(n, j, m->epoch));)
            if (!used[n]) {
                sim_broken("missing", j,
                           "job %lld is done, and what it said as the %lldth is not here",
                           (long long)j, (long long)n);
                return;
            }
    }
}

/* Sets the target state of a stopping job. A job that must end cannot be suspended. */
static void take_ask(struct model *m, const struct row *r)
{
    const bool stopping = m->state == JOB_STOPPING;
    if (m->state != JOB_STARTING && m->state != JOB_RUNNING && !stopping) return;
    if (r->type == EV_SUSPEND && (!stopping || m->target == JOB_QUEUED)) m->target = JOB_SUSPENDED;
    if (r->type == EV_RESUME && m->target == JOB_SUSPENDED) m->target = JOB_QUEUED;
    if (r->type == EV_DRAIN) m->target = JOB_QUEUED;
    if (r->type == EV_WALL_LIMIT) m->target = JOB_FAILED;
}

static void take_row(const struct row *r)
{
    struct model *m = model_of(r->job);
    const char *name = job_event_name(r->type);
    n_rows++;
    if (!m) return;
    sim_note(r->job, "row %lld: job %lld e%lld %s %.300s", (long long)r->seq, (long long)r->job,
             (long long)r->epoch, name, r->data);
    if (r->type == EV_SUBMIT) {
        if (m->version++)
            sim_broken("table", r->job, "job %lld is submitted twice", (long long)r->job);
        return;
    }
    const int next = m->version ? next_state(m, name) : -1;
    if (next < 0) {
        sim_broken("table", r->job, "job %lld is %s and takes %s", (long long)r->job,
                   job_state_name((enum job_state)m->state), name);
        return;
    }
    if (r->type != EV_ASSIGN && r->epoch != m->epoch)
        sim_broken("epoch", r->job, "%s of epoch %lld is taken in epoch %lld", name,
                   (long long)r->epoch, (long long)m->epoch);
    if (r->type == EV_ASSIGN) m->state = next, take_assign(m, r);
    if (r->type == EV_AWAY || r->type == EV_BACK || r->type == EV_NODE_LOST) take_away(m, r);
    if (r->type == EV_RANK_EXIT || r->type == EV_NODE_LOST || r->type == EV_HANG ||
        r->type == EV_START_TIMEOUT)
        take_failure(m, r);
    if (r->type == EV_CANCEL) m->target = JOB_CANCELLED;
    take_ask(m, r);
    if (r->type == EV_CHECKPOINT) take_product(m, r);
    if (r->type == EV_STOPPED) check_stopped(m, r);
    if (r->type == EV_DONE) check_done(m, r);
    m->state = next;
    m->version++;
    if (job_final((enum job_state)next) && m->cancel_acked && next != JOB_CANCELLED)
        sim_broken("cancel", r->job, "the cancel of job %lld was acknowledged; it is %s",
                   (long long)r->job, job_state_name((enum job_state)next));
}

/* ---- the rows -------------------------------------------------------------------------------- */

static bool open_db(void)
{
    char path[300];
    if (!seqd_up()) return false;
    if (db && db_life == seqd_starts()) return true;
    check_close();
    snprintf(path, sizeof path, "%s/seqd.db", sim_dir());
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL)) abort();
    db_life = seqd_starts();
    return true;
}

static uint64_t hash(uint64_t h, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static sqlite3_stmt *prepare(const char *sql, int64_t after)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL)) {
        sim_broken("read", 0, "the checker cannot read: %s", sqlite3_errmsg(db));
        return NULL;
    }
    sqlite3_bind_int64(st, 1, after);
    return st;
}

static struct row row_at(sqlite3_stmt *st)
{
    return (struct row){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
                        sqlite3_column_int64(st, 2), (enum job_event)sqlite3_column_int(st, 3),
                        (const char *)sqlite3_column_text(st, 4)};
}

int64_t check_count(const char *rows)
{
    char sql[64];
    disk.aside = true;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", rows);
    sqlite3_stmt *st = open_db() ? prepare(sql, 0) : NULL;
    const int64_t n = st && sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    sqlite3_finalize(st);
    disk.aside = false;
    return n;
}

#define ROWS_AFTER "SELECT seq, job, epoch, type, data FROM events WHERE seq > ?1 ORDER BY seq"

static uint64_t row_hash(uint64_t h, const struct row *r)
{
    h = hash(h, &r->seq, sizeof r->seq);
    h = hash(h, &r->job, sizeof r->job);
    h = hash(h, &r->epoch, sizeof r->epoch);
    return hash(h, r->data, strlen(r->data));
}

static void read_events(void)
{
    sqlite3_stmt *st = prepare(ROWS_AFTER, last_row);
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        struct row r = row_at(st);
        take_row(&r);
        last_row = r.seq;
        rows_hash = row_hash(rows_hash, &r);
    }
    sqlite3_finalize(st);
}

/* Processes the steps of one second. */
static void take_steps(int64_t job, const char *data)
{
    struct model *m = model_of(job);
    sim_note(job, "steps of job %lld: %.400s", (long long)job, data);
    for (const char *at = data; m && !m->tainted && (at = strstr(at, "{\"step\":")); at++) {
        const int64_t nonce = (int64_t)strtod(value(at, "loss") ? value(at, "loss") : "0", NULL);
        const int64_t epoch = number(at, "epoch");
        if (!gang_said(nonce, job, epoch, EV_STEP))
            sim_broken("false", job, "no rank of job %lld made the step %.120s", (long long)job,
                       at);
        else if (used[nonce])
            sim_broken("again", job, "a step is taken twice: %.120s", at);
        else if (epoch < m->step_epoch || epoch < m->read_epoch)
            sim_broken("epoch", job, "a step of epoch %lld after one of %lld, in epoch %lld",
                       (long long)epoch, (long long)m->step_epoch, (long long)m->read_epoch);
        else
            used[nonce] = true;
        m->step_epoch = epoch;
    }
}

static void read_metrics(void)
{
    sqlite3_stmt *st = prepare("SELECT seq, job, data FROM metrics WHERE seq > ?1 ORDER BY seq",
                               last_metric);
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        last_metric = sqlite3_column_int64(st, 0);
        take_steps(sqlite3_column_int64(st, 1), (const char *)sqlite3_column_text(st, 2));
    }
    sqlite3_finalize(st);
}

/* Counts a new job of a batch. The name of the job has the batch and the number of jobs in the
 * batch. All jobs of a batch must be committed together. */
static void count_batch(const char *name, int count[SIM_JOBS + 1], int want[SIM_JOBS + 1])
{
    int number, n;
    if (!name || sscanf(name, "batch-%d-%d", &number, &n) != 2 || number > SIM_JOBS) return;
    count[number]++;
    want[number] = n;
}

static void read_new(void)
{
    int count[SIM_JOBS + 1] = {0}, want[SIM_JOBS + 1];
    sqlite3_stmt *st = prepare("SELECT id, json_extract(spec, '$.limits.restarts'), "
                               "json_extract(spec, '$.name'), json_extract(plan, "
                               "CASE json_extract(spec, '$.resources.device') WHEN 'cuda' THEN "
                               "'$.memory.host_bytes' ELSE '$.memory.total_bytes' END), "
                               "json_extract(plan, '$.pp') FROM jobs WHERE id > ?1",
                               known_jobs);
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        struct model *m = model_of(sqlite3_column_int64(st, 0));
        if (m) m->max_restarts = sqlite3_column_int(st, 1);
        if (m && sqlite3_column_int(st, 4) < 2) m->rank_size = sqlite3_column_int64(st, 3);
        count_batch((const char *)sqlite3_column_text(st, 2), count, want);
        known_jobs = sqlite3_column_int64(st, 0);
    }
    sqlite3_finalize(st);
    for (int i = 0; i <= SIM_JOBS; i++)
        if (count[i] && count[i] != want[i])
            sim_broken("torn", known_jobs, "%d of %d jobs of batch %d are there", count[i], want[i],
                       i);
}

static void read_jobs(void)
{
    sqlite3_stmt *st = prepare("SELECT id, state FROM jobs WHERE id > ?1", 0);
    bool there[sizeof models / sizeof *models] = {0};
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        const int64_t id = sqlite3_column_int64(st, 0);
        struct model *m = model_of(id);
        if (!m) continue;
        there[id] = true;
        if (m->state != sqlite3_column_int(st, 1))
            sim_broken("fold", id, "job %lld is stored as %s, by its events it is %s",
                       (long long)id, job_state_name((enum job_state)sqlite3_column_int(st, 1)),
                       job_state_name((enum job_state)m->state));
    }
    sqlite3_finalize(st);
    for (int64_t j = 1; j <= n_models && st; j++)
        if ((models[j].acked || models[j].version) && !there[j])
            sim_broken("lost", j, "job %lld was acknowledged and is not there", (long long)j);
}

static void read_all(void)
{
    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    read_new();
    read_events();
    read_metrics();
    check_whole();
    read_jobs();
    for (int64_t j = 1; j <= n_models; j++) models[j].read_epoch = models[j].epoch;
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
}

void check_rows(void)
{
    disk.aside = true;
    if (open_db()) read_all();
    disk.aside = false;
}

static void read_again(void)
{
    uint64_t h = 0;
    int64_t n = 0;
    sqlite3_stmt *st = prepare(ROWS_AFTER, 0);
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        struct row r = row_at(st);
        if (r.seq > last_row) break;
        h = row_hash(h, &r);
        n++;
    }
    sqlite3_finalize(st);
    if (n != n_rows || h != rows_hash)
        sim_broken("back", 0, "%lld events were committed up to %lld, now there are %lld%s",
                   (long long)n_rows, (long long)last_row, (long long)n,
                   n == n_rows ? ", and others" : "");
    read_all();
}

void check_again(void)
{
    disk.aside = true;
    if (open_db()) read_again();
    disk.aside = false;
}

/* ---- what clients were told ------------------------------------------------------------------ */

void check_submitted(const char *key, int64_t job)
{
    struct model *m = model_of(job);
    if (!m) return;
    for (int64_t j = 1; j <= n_models; j++)
        if (j != job && !strcmp(models[j].key, key))
            sim_broken("key", job, "%s is job %lld and job %lld", key, (long long)j,
                       (long long)job);
    if (*m->key && strcmp(m->key, key))
        sim_broken("key", job, "job %lld answers %s and %s", (long long)job, m->key, key);
    snprintf(m->key, sizeof m->key, "%s", key);
    m->acked = true;
    check_rows();
}

void check_cancelled(int64_t job)
{
    struct model *m = model_of(job);
    if (m) m->cancel_acked = true;
}

void check_cordoned(int node, bool is)
{
    check_rows(); /* rows that were committed before do not count */
    cordoned[node] = is;
}

void check_shown(const char *doc)
{
    const int64_t id = number(doc, "id"), version = number(doc, "version");
    struct model *m = model_of(id);
    char state[16];
    word(doc, "state", state, sizeof state);
    const int is = state_named(state);
    if (!m) return;
    check_rows();
    if (version > m->version)
        sim_broken("shown", id, "job %lld is shown with version %lld, %lld is committed",
                   (long long)id, (long long)version, (long long)m->version);
    if (version < m->shown_version || (version == m->shown_version && is != m->shown_state))
        sim_broken("shown", id, "job %lld was shown as %s (version %lld), now as %s (%lld)",
                   (long long)id, job_state_name((enum job_state)m->shown_state),
                   (long long)m->shown_version, state, (long long)version);
    m->shown_version = version;
    m->shown_state = is;
}

void check_page(int64_t job, const char *page, bool metrics)
{
    int64_t last = 0;
    check_rows();
    for (const char *at = page; (at = strstr(at, "{\"seq\":")); at++) {
        const int64_t seq = number(at, "seq");
        if (seq <= last)
            sim_broken("order", job, "seq %lld after %lld", (long long)seq, (long long)last);
        if (seq > (metrics ? last_metric : last_row))
            sim_broken("shown", job, "seq %lld is shown and not committed", (long long)seq);
        last = seq;
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Tells whether the job's reason shows that the job waits for the node of liar.c. This happens if
 * the liar has reported a checkpoint that does not exist and never connects again. */
bool check_waits_for_liar(int64_t j)
{
    char want[64];
    snprintf(want, sizeof want, "node %s, which holds its checkpoint", node_name(SIM_LIAR));
    const struct model *m = model_of(j);
    const bool waits = m && (m->state == JOB_QUEUED || m->state == JOB_STARTING ||
                             m->state == JOB_RUNNING);
    return waits && m->tainted && strstr(seqd_reason(j), want);
}

static bool has_ended(int64_t j)
{
    return !models[j].version || job_final((enum job_state)models[j].state);
}

bool check_ended(void)
{
    for (int64_t j = 1; j <= n_models; j++)
        if (!has_ended(j)) return false;
    return true;
}

static int64_t rank_size(int64_t job)
{
    const struct model *m = model_of(job);
    return m ? m->rank_size : 0;
}

void check_truth(void)
{
    for (int k = 0; k < SIM_LIAR; k++)
        if (gang_memory(k, rank_size) > node_memory(k))
            sim_broken("memory", 0, "ranks on %s take %lld bytes, it has %lld", node_name(k),
                       (long long)gang_memory(k, rank_size), (long long)node_memory(k));
    for (int k = 0; k < SIM_LIAR; k++)
        if (gang_ranks(k) > node_slots(k))
            sim_broken("slots", 0, "%d ranks run on %s, which has %d slots", gang_ranks(k),
                       node_name(k), node_slots(k));
}

void check_at_end(void)
{
    check_rows();
    for (int64_t j = 1; j <= n_models; j++)
        if (!has_ended(j))
            sim_broken("live", j, "job %lld has not come to its end: it is %s: %s", (long long)j,
                       job_state_name((enum job_state)models[j].state), seqd_reason(j));
    for (int k = 0; k < SIM_LIAR && seqd_up() && !sim_is_broken(); k++)
        if (seqd_reserved(node_name(k)))
            sim_broken("leak", 0, "%d slots of %s are held by nothing", seqd_reserved(node_name(k)),
                       node_name(k));
    if (gangs_alive() && !sim_is_broken())
        sim_broken("orphan", 0, "%d gangs run on without a job", gangs_alive());
}

void check_report(int count[], int64_t *rows, int64_t *cut_logs)
{
    for (int64_t j = 1; j <= n_models; j++)
        if (models[j].version) count[models[j].state]++;
    *rows += n_rows;
    *cut_logs += n_cut_logs;
    n_cut_logs = 0;
}
