/* node.c: one life of an agent, which is worker/agent/agent.c over simulated layers. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/sim/sim.h"
#include "worker/agent/agent.h"
#include "worker/agent/gpus.h"
#include "worker/agent/probe.h"

static struct node {
    char name[8], state[128], address[16];
    struct loop *loop;
    struct agent *agent;
    int64_t start_ms, paused_ms;
    int n_slots, n_gpus;
    struct {
        int health;
        int64_t until_ms;
    } gpu[SIM_GPUS];
} nodes[SIM_NODES];

static int now_node = -1;
static char bin[80];

static int64_t clock_now(void *arg)
{
    return sim_now;
}

int node_now(void)
{
    return now_node;
}

void node_enter(int i)
{
    now_node = i;
}

const char *node_name(int i)
{
    return nodes[i].name;
}

int node_slots(int i)
{
    return nodes[i].n_slots;
}

/* Returns a node's memory. Node 0 has room for four ranks, so every job fits on it, except while
 * it also prepares data. */
int64_t node_memory(int i)
{
    const int64_t slot = sim_tight ? (i ? 60 : 100) : 16384;
    return nodes[i].n_slots * slot << 20;
}

int nodes_gpus(void)
{
    int n = 0;
    for (int i = 0; i < SIM_NODES; i++) n += nodes[i].n_gpus;
    return n;
}

bool node_runs(int i)
{
    return nodes[i].agent != NULL;
}

struct loop *node_loop(int i)
{
    return nodes[i].loop;
}

int64_t node_paused(int i)
{
    return nodes[i].paused_ms;
}

/* ---- the agent's questions to its machine ---------------------------------------------------- */

int probe_cores(void)
{
    return 4;
}

int64_t probe_memory_size(void)
{
    return node_memory(now_node);
}

int64_t probe_oom_kills(void)
{
    return 0;
}

int probe_address(const char *given, const char *seqd, char out[RANK_ADDRESS_SIZE], struct err *e)
{
    snprintf(out, RANK_ADDRESS_SIZE, "%s", given);
    return 0;
}

struct gpus *gpus_open(const char *library, const char *dir, const char *state, int look_ms)
{
    return (struct gpus *)&nodes[now_node];
}

void gpus_close(struct gpus *g)
{
}

int gpus_get(struct gpus *g, struct gpu out[GPU_MAX])
{
    struct node *n = (struct node *)g;
    if (!n) return 0;
    const int at = (int)(n - nodes);
    for (int i = 0; i < n->n_gpus; i++) {
        out[i] = (struct gpu){.memory_size = (int64_t)80 << 30, .memory_free = (int64_t)79 << 30};
        out[i].major = 9;
        snprintf(out[i].uuid, GPU_UUID_SIZE, "GPU-%d-%d", at, i);
        snprintf(out[i].name, GPU_NAME_SIZE, "simulated");
        if (n->gpu[i].until_ms > sim_now) out[i].health = n->gpu[i].health;
        if (n->gpu[i].until_ms > sim_now && n->gpu[i].health == GPU_XID) out[i].xid = 79;
        out[i].n_processes = gang_uses_gpu(at, out[i].uuid);
    }
    return n->n_gpus;
}

int gpus_choose(struct gpus *g, const struct allocation *a, struct err *e)
{
    return 0;
}

int spawn_program(const char *program, char *const argv[], int out_fd, int err_fd, struct err *e);
int spawn_program(const char *program, char *const argv[], int out_fd, int err_fd, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "nothing is run here");
}

/* ---- lives ----------------------------------------------------------------------------------- */

static void make_bin(void)
{
    char path[96];
    snprintf(bin, sizeof bin, "%.60s/bin", sim_dir());
    mkdir(bin, 0700);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", bin, i ? "seqrank" : "seqgang");
        close(open(path, O_CREAT | O_WRONLY, 0700));
    }
}

void nodes_reset(int n_gpus)
{
    memset(nodes, 0, sizeof nodes);
    make_bin();
    for (int i = 0; i < SIM_NODES; i++) {
        struct node *n = &nodes[i];
        snprintf(n->name, sizeof n->name, "%c", 'a' + i);
        snprintf(n->address, sizeof n->address, "10.0.0.%d", i + 1);
        snprintf(n->state, sizeof n->state, "%.60s/%.7s", sim_dir(), n->name);
        n->n_slots = i == SIM_LIAR ? 1 : 1 + sim_below(4);
        n->n_gpus = i < 2 ? n_gpus : 0;
        n->start_ms = sim_now + sim_below(3000);
    }
    nodes[0].n_slots = 4; /* any job must have room on some node */
}

static void start(struct node *n)
{
    struct err e = {0};
    const struct agent_options o = {.connect = sim_tls ? "10.0.0.9:7434" : "unix:/sim",
                                    .token_file = sim_tls ? seqd_token() : NULL,
                                    .name = n->name,
                                    .address = n->address,
                                    .state = n->state,
                                    .bin = bin,
                                    .n_slots = n->n_slots,
                                    .nvml = n->n_gpus ? "sim" : NULL};
    now_node = (int)(n - nodes);
    n->loop = loop_create(clock_now, NULL, &e);
    n->agent = n->loop ? agent_create(n->loop, &o, &e) : NULL;
    now_node = -1;
    if (!n->agent) sim_broken("agent", 0, "seqw %s does not start: %s", n->name, e.text);
    sim_note(0, "seqw %s: starts", n->name);
}

static void stop(struct node *n)
{
    if (!n->agent) return;
    agent_destroy(n->agent);
    loop_destroy(n->loop);
    n->agent = NULL;
    n->loop = NULL;
    n->paused_ms = 0;
}

void node_kill(int i)
{
    struct node *n = &nodes[i];
    if (!n->agent) return;
    sim_note(0, "seqw %s: kill -9", n->name);
    stop(n);
    n->start_ms = sim_now + 100 + sim_below(sim_below(3) ? 2000 : 30000);
}

void node_forget(int i)
{
    struct node *n = &nodes[i];
    char path[160];
    stop(n);
    snprintf(path, sizeof path, "%s/pki/node.pem", n->state);
    if (unlink(path)) sim_broken("still", 0, "seqw %s has no certificate", n->name);
    n->start_ms = sim_now;
}

void node_quit(int i)
{
    struct node *n = &nodes[i];
    if (!n->agent || n->paused_ms > sim_now) return;
    const int64_t grace_ms = sim_below(3) ? 30000 : sim_below(2000);
    sim_note(0, "seqw %s: SIGTERM, with a grace of %lld ms", n->name, (long long)grace_ms);
    now_node = i;
    agent_leave(n->agent, grace_ms, "SIGTERM");
    now_node = -1;
}

/* Notes the orderly end of an agent, which starts again later. */
static void quit_end(struct node *n)
{
    sim_note(0, "seqw %s: ends in order", n->name);
    stop(n);
    n->start_ms = sim_now + 100 + sim_below(20000);
}

void node_pause(int i, int64_t until_ms)
{
    if (!nodes[i].agent) return;
    sim_note(0, "seqw %s: stopped for %lld ms", nodes[i].name, (long long)(until_ms - sim_now));
    nodes[i].paused_ms = until_ms;
}

void node_leave(int i, int64_t until_ms)
{
    sim_note(0, "node %s: the machine is off for %lld ms", nodes[i].name,
             (long long)(until_ms - sim_now));
    stop(&nodes[i]);
    gang_kill_all(i);
    nodes[i].start_ms = until_ms;
}

void node_gpu(int i, int gpu, int health, int64_t until_ms)
{
    if (gpu >= nodes[i].n_gpus) return;
    if (health) sim_note(0, "node %s: GPU %d is %s", nodes[i].name, gpu, gpu_health_name(health));
    nodes[i].gpu[gpu].health = health;
    nodes[i].gpu[gpu].until_ms = until_ms;
}

static void reap(void *arg)
{
    struct node *n = arg;
    agent_reap(n->agent);
}

void node_reap(int i)
{
    if (nodes[i].agent) loop_post(nodes[i].loop, reap, &nodes[i]);
}

void nodes_turn(void)
{
    for (int k = 0, first = sim_below(SIM_LIAR); k < SIM_LIAR; k++) {
        struct node *n = &nodes[(first + k) % SIM_LIAR];
        if (sim_calm && n->start_ms > sim_now + 1000) n->start_ms = sim_now + 1000;
        if (!n->agent && sim_now >= n->start_ms && (!sim_tls || seqd_token())) start(n);
        if (!n->agent || n->paused_ms > sim_now) continue;
        now_node = (int)(n - nodes);
        net_turn(n->loop);
        loop_turn(n->loop, 0);
        now_node = -1;
        if (loop_stopped(n->loop)) quit_end(n);
    }
}

void nodes_end(void)
{
    for (int i = 0; i < SIM_NODES; i++) stop(&nodes[i]);
}
