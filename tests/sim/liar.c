/* liar.c: a node that speaks the protocol and sends false reports. If the liar has no part of a
 * job, its reports must not change that job. */
#include <string.h>
#include "api/core/job_state.h"
#include "api/rpc.h"
#include "tests/sim/sim.h"

static struct rpc_stream *stream;
static struct rpc_client *client;
static struct loop *loop;
static int64_t next_ms;
static struct {
    int64_t job, epoch;
} told[64]; /* attempts that the liar was given */
static int n_told;

static int64_t clock_now(void *arg)
{
    return sim_now;
}

static void send_msg(const struct msg *m)
{
    struct arena a;
    size_t size;
    if (!stream) return;
    arena_init(&a, 16 << 20);
    void *data = wire_pack(m, &a, &size);
    if (!data || rpc_send(stream, data, size)) rpc_stream_close(stream);
    arena_fini(&a);
}

static void report(int64_t job, int64_t epoch, int64_t seq, int type, int rank, const void *data,
                   size_t size)
{
    char out[sizeof(struct rank_msg) + sizeof(struct rank_step) + 512];
    const struct rank_msg head = {RANK_ABI, (uint32_t)type, rank, (uint32_t)size};
    memcpy(out, &head, sizeof head);
    if (size) memcpy(out + sizeof head, data, size);
    struct msg m = {.type = MSG_REPORT, .job = job, .epoch = epoch, .seq = seq, .data = out};
    m.size = sizeof head + size;
    if (!sim_below(20)) m.size -= 1; /* the size is wrong, too */
    send_msg(&m);
}

static void lie_of_end(int64_t job, int64_t epoch, int64_t seq)
{
    struct rank_exit x = {.rank = RANK_GANG, .exit_status = sim_below(GANG_END_N + 1)};
    if (!sim_below(4)) x.rank = sim_below(4), x.exit_status = 1;
    report(job, epoch, seq, RANK_EXIT, x.rank, &x, sizeof x);
}

static void lie_of_work(int64_t job, int64_t epoch, int64_t seq)
{
    struct rank_step s = {.step = sim_below(100), .loss = -1, .tokens = 1, .ledger_ok = 1};
    struct {
        struct rank_event ev;
        char json[32];
    } c = {{.type = EV_CHECKPOINT, .step = sim_below(100)}, "{\"path\":\"/lie\",\"nonce\":-1}"};
    if (sim_below(2))
        report(job, epoch, seq, RANK_STEP, sim_below(3) - 1, &s, sizeof s);
    else
        report(job, epoch, seq, RANK_EVENT, 0, &c, sizeof c.ev + strlen(c.json));
}

static void lie(void)
{
    const int n = clients_jobs() + 2;
    int64_t job = 1 + sim_below(n), epoch = 1 + sim_below(6), seq = sim_below(12);
    if (n_told && sim_below(3) == 0) {
        const int i = sim_below(n_told);
        job = told[i].job, epoch = told[i].epoch + (sim_below(3) ? 0 : sim_below(3) - 1);
    }
    struct rank_fail f = {.code = sim_below(ERR_N), .text = "a lie"};
    struct msg log = {.type = MSG_LOG, .job = job, .epoch = epoch, .data = "lie\n", .size = 4};
    switch (sim_below(7)) {
    case 0: lie_of_end(job, epoch, seq); break;
    case 1: lie_of_work(job, epoch, seq); break;
    case 2: report(job, epoch, seq, RANK_READY, sim_below(5) - 1, NULL, 0); break;
    case 3: report(job, epoch, seq, RANK_RESULT, 0, "{\"lie\":1}", 9); break;
    case 4: report(job, epoch, seq, RANK_FAIL, sim_below(5) - 1, &f, sizeof f); break;
    case 5: report(job, epoch, seq, RANK_BLOB, sim_below(5), "blob", 4); break;
    default:
        log.offset = sim_below(2) ? sim_below(2000) : 0;
        log.rank = sim_below(4);
        send_msg(&log);
    }
}

static void on_opened(void *arg, struct rpc_stream *s)
{
    struct wire_attempt list[8];
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 1, .n_cores = 1};
    stream = s;
    m.memory_size = sim_tight ? (int64_t)50 << 20 : (int64_t)1 << 36; /* no node has less memory */
    memset(m.instance, 'L', sizeof m.instance);
    snprintf(m.node, sizeof m.node, "%s", node_name(sim_below(6) ? SIM_LIAR : sim_below(SIM_LIAR)));
    snprintf(m.address, sizeof m.address, "10.0.0.99");
    snprintf(m.version, sizeof m.version, "0");
    m.attempts = list;
    for (int n = sim_below(4); n > 0; n--)
        list[m.n_attempts++] = (struct wire_attempt){1 + sim_below(clients_jobs() + 1),
                                                     1 + sim_below(4), 1};
    sim_note(0, "liar: says it is node %s", m.node);
    send_msg(&m);
}

static void on_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    static struct arena a;
    struct msg m;
    struct err e;
    if (!a.limit_size) arena_init(&a, 16 << 20);
    if (wire_unpack(data, size, &a, &m, &e) == 0) {
        if (m.type == MSG_REFUSED) rpc_client_wait(client, m.retry_ms), rpc_stream_close(s);
        if (m.type == MSG_ASSIGN) check_tainted(m.job);
        if (m.type == MSG_ASSIGN && n_told < 64) {
            told[n_told].job = m.job;
            told[n_told++].epoch = m.epoch;
        }
        if (m.type == MSG_STOP && sim_calm) {
            const struct rank_exit x = {.rank = RANK_GANG, .exit_status = GANG_UNKNOWN};
            report(m.job, m.epoch, 0, RANK_EXIT, RANK_GANG, &x, sizeof x);
        }
    }
    arena_reset(&a);
}

static void on_closed(void *arg, struct rpc_stream *s, const char *why)
{
    stream = NULL;
}

static void come(void)
{
    static const struct rpc_calls calls = {on_opened, on_message, on_closed};
    struct err e;
    node_enter(SIM_LIAR);
    loop = loop_create(clock_now, NULL, &e);
    client = rpc_dial(loop, "unix:/sim", &calls, NULL, &e);
    node_enter(-1);
    next_ms = sim_now;
}

void liar_stop(void)
{
    if (!loop) return;
    rpc_client_destroy(client);
    loop_destroy(loop);
    client = NULL;
    loop = NULL;
    stream = NULL;
}

void liar_reset(void)
{
    n_told = 0;
    next_ms = 0;
    stream = NULL;
}

void liar_turn(void)
{
    if (sim_calm || (loop && sim_chance(20))) {
        liar_stop();
        return;
    }
    if (!loop && !sim_tls && !sim_below(3000)) come();
    if (!loop) return;
    node_enter(SIM_LIAR);
    net_turn(loop);
    loop_turn(loop, 0);
    node_enter(-1);
    if (!stream || sim_now < next_ms) return;
    if (!sim_below(10)) send_msg(&(struct msg){.type = MSG_HEARTBEAT});
    lie();
    next_ms = sim_now + 50 + sim_below(1500);
}
