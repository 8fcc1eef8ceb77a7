/* prometheus.c: GET /metrics, which shows numbers of this seqd in Prometheus' text format. They
 * are read from the state of the loop thread, without a lock or a query. No label names a user, and
 * none names a job but those of jobs that serve (prometheus_serve.c), because the number of jobs
 * and users is not limited. */
#include <stdlib.h>
#include "api/core/job_state.h"
#include "api/core/version.h"
#include "daemon/http/prometheus_serve.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/loop/plan_cache.h"
#include "daemon/state/cluster.h"
#include "daemon/state/gpus.h"

struct live_counts {
    int64_t state[JOB_STATE_N], gpus;
};

static void tally_job(void *arg, struct job *j)
{
    struct live_counts *t = arg;
    t->state[j->state]++;
    if (j->gpus)
        for (int i = 0; i < j->n_places; i++) t->gpus += j->places[i].n_ranks;
}

static void add_jobs(struct exposition *x, const struct live_counts *t)
{
    exposition_family(x, "seqd_jobs", "gauge", "Live jobs by state.");
    for (int s = 0; s < JOB_STATE_N; s++)
        if (!job_final((enum job_state)s))
            exposition_add(x, "seqd_jobs{state=\"%s\"} %lld\n", job_state_name((enum job_state)s),
                           (long long)t->state[s]);
}

static void add_nodes(struct exposition *x, const struct cluster *k, int64_t now_ms,
                      const struct live_counts *t)
{
    int64_t up = 0, down = 0, shut = 0, cordoned = 0, slots = 0, reserved = 0, gpus = 0,
            dropped = 0;
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        const bool quarantined = quarantine_find(k->quarantine, n->name) != NULL;
        struct cordon why;
        dropped += n->n_dropped;
        cordoned += cordon_of(k->cordons, n, now_ms, &why);
        shut += quarantined;
        down += !quarantined && !n->up;
        up += !quarantined && n->up;
        if (!n->up) continue;
        slots += n->n_slots;
        gpus += n->n_gpus;
        reserved += cluster_reserved(k, n->name);
    }
    exposition_family(x, "seqd_nodes", "gauge", "Nodes by state.");
    exposition_add(x, "seqd_nodes{state=\"up\"} %lld\nseqd_nodes{state=\"down\"} %lld\n",
                   (long long)up, (long long)down);
    exposition_add(x, "seqd_nodes{state=\"quarantined\"} %lld\n", (long long)shut);
    exposition_one(x, "seqd_nodes_cordoned", "gauge", (double)cordoned,
                   "Nodes that are cordoned, drained or about to end, up or down.");
    exposition_one(x, "seqd_slots", "gauge", (double)slots, "Slots of nodes that are up.");
    exposition_one(x, "seqd_slots_allocated", "gauge", (double)reserved,
                   "Slots of those that jobs hold.");
    exposition_one(x, "seqd_gpus", "gauge", (double)gpus, "GPUs of nodes that are up.");
    exposition_one(x, "seqd_gpus_allocated", "gauge", (double)t->gpus, "GPUs that jobs hold.");
    exposition_one(x, "seqd_node_messages_dropped", "gauge", (double)dropped,
                   "Messages of the known nodes that were not their own to send.");
}

static int64_t disk_member(const struct disk_use *d, int which)
{
    return which == 0 ? d->size : which == 1 ? d->free : which == 2 ? d->jobs : d->prepared;
}

/* Adds the disks of nodes. Nodes may be labels, because their number is limited and their names
 * are safe (wire_name_good). */
static void add_disks(struct exposition *x, const struct nodes *t)
{
    static const struct {
        const char *name, *help;
    } rows[] = {{"seqd_node_disk_bytes", "The file system of a node's state directory."},
                {"seqd_node_disk_free_bytes", "What is free of it."},
                {"seqd_node_jobs_bytes", "Checkpoints and artifacts of jobs on a node."},
                {"seqd_node_prepared_bytes", "Prepared data on a node."}};
    for (int k = 0; k < 4; k++) {
        exposition_family(x, rows[k].name, "gauge", rows[k].help);
        for (int i = 0; i < t->n; i++)
            if (t->node[i].up && t->node[i].disk.size)
                exposition_add(x, "%s{node=\"%s\"} %lld\n", rows[k].name, t->node[i].name,
                               (long long)disk_member(&t->node[i].disk, k));
    }
}

static void add_backups(struct exposition *x, const struct backups *b)
{
    struct backup_plan p;
    backups_plan(b, &p);
    if (!p.every_ms) return;
    exposition_one(x, "seqd_backup_last_timestamp_seconds", "gauge", (double)p.last_ms / 1000,
                   "When the newest backup of --backup-every was made; 0: none is there.");
    exposition_one(x, "seqd_backup_failures_total", "counter", (double)p.n_failed,
                   "Backups of --backup-every that failed.");
}

static void add_store(struct exposition *x, struct control *c)
{
    struct store_health h;
    store_health(control_store(c), &h);
    exposition_one(x, "seqd_commits_waiting", "gauge", h.n_waiting,
                   "Requests that wait for their commit.");
    exposition_one(x, "seqd_commit_seconds", "gauge",
                   h.commit_ms < 0 ? 0 : (double)h.commit_ms / 1000, "What the last commit took.");
    exposition_one(x, "seqd_commit_stuck_seconds", "gauge", (double)h.stuck_ms / 1000,
                   "Since the last commit, while requests wait.");
    exposition_one(x, "seqd_wal_bytes", "gauge", (double)h.wal_size,
                   "Bytes of the log without a checkpoint.");
    exposition_one(x, "seqd_disk_full", "gauge", h.full,
                   "1: the disk of the state directory is full.");
    exposition_one(x, "seqd_database_locked", "gauge", h.locked,
                   "1: another program has locked seqd.db.");
    exposition_one(x, "seqd_database_sound", "gauge", h.checked == STORE_SOUND,
                   "1: the check of the database that ended last found no fault.");
    exposition_one(x, "seqd_database_check_age_seconds", "gauge",
                   h.check_age_ms < 0 ? -1 : (double)h.check_age_ms / 1000,
                   "Since this check; -1: none has ended since the start.");
    add_backups(x, store_backups(control_store(c)));
}

static void add_plans(struct exposition *x, struct plan_cache *c)
{
    const struct plan_cache_counts n = plan_cache_counts(c);
    exposition_family(x, "seqd_plans_total", "counter",
                      "Plans of jobs: made, or kept from a job of the same shape.");
    exposition_add(x, "seqd_plans_total{source=\"made\"} %lld\n", (long long)n.missed);
    exposition_add(x, "seqd_plans_total{source=\"kept\"} %lld\n", (long long)n.found);
}

void route_prometheus(struct routes *R, struct http_req *r, const struct route_match *a)
{
    const struct cluster *k = control_cluster(R->control);
    struct exposition text = {0}, *const x = &text;
    struct live_counts t = {0};
    jobs_each((struct jobs *)&k->jobs, tally_job, &t);
    exposition_family(x, "seqd_build_info", "gauge", "1, with the version and the revision.");
    exposition_add(x, "seqd_build_info{version=\"%s\",revision=\"%.64s\"} 1\n", SEQD_VERSION,
                   version_revision());
    add_jobs(x, &t);
    add_nodes(x, k, control_now_ms(R->control), &t);
    add_disks(x, &k->nodes);
    exposition_one(x, "seqd_scheduler_cycles_total", "counter", (double)control_passes(R->control),
                   "Scheduling passes.");
    exposition_one(x, "seqd_loop_busy_seconds_total", "counter",
                   (double)control_busy_ms(R->control) / 1000,
                   "Time that the loop has not waited.");
    exposition_one(x, "seqd_http_requests_total", "counter", (double)http_id(r),
                   "Requests that were read.");
    add_plans(x, R->plans);
    add_store(x, R->control);
    prometheus_serve(x, &k->jobs, http_peer(r)->scrape ? NULL : &a->who);
    http_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", x->text, x->n);
    free(x->text);
}
