/* world.c: time, chance and faults. `sim SEED [STEPS]` runs one seed. `sim --faults N [SEED]` runs
 * seeds until N faults have been injected. */
#include <ftw.h>
#include <signal.h>
#include <unistd.h>
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "daemon/spec/json.h"
#include "tests/lib/mutant.h"
#include "tests/lib/scratch.h"
#include "tests/sim/oom.h"
#include "tests/sim/sim.h"

enum { NOTES = 4096, NOTE_SIZE = 512, SHOWN = 60, CALM_MS = 4 * 3600 * 1000 };

enum fault {
    SEQD_KILL,
    SEQD_POWER,
    SEQD_PAUSE,
    SEQD_QUIT,
    AGENT_KILL,
    AGENT_PAUSE,
    GANG_KILL,
    GANG_PAUSE,
    CUT,
    BREAK,
    FULL,
    DISK_FAILS,
    SYNC_FAILS,
    CLOCK,
    LEAVE,
    GPU,
    N_DRAWN,
    AGENT_LEAVES = N_DRAWN, /* replaces a fault that was drawn */
    N_FAULTS
};

static const char *const fault_names[N_FAULTS] = {
    "seqd killed",   "power cut",        "seqd stopped", "seqd ended",       "agent killed",
    "agent stopped", "gang killed",      "gang stopped", "link cut",         "session broken",
    "disk full",     "disk call failed", "sync failed",  "wall clock moved", "machine off",
    "GPU gone",      "agent leaves",
};

int64_t sim_now, sim_utc;
bool sim_calm, sim_tight, sim_tls;
static uint64_t seed, state;
static char dir[64];
static struct {
    int64_t job, at_ms;
    char text[NOTE_SIZE];
} notes[NOTES];
static int64_t n_notes, step, full_until_ms;
static bool broken, loud, muted;
static char broken_rule[32];
static int64_t faults[N_FAULTS], n_faults;

/* ---- chance ---------------------------------------------------------------------------------- */

/* splitmix64 */
uint64_t sim_random(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int sim_below(int n)
{
    return n > 0 ? (int)(sim_random() % (uint64_t)n) : 0;
}

bool sim_chance(int per_million)
{
    return !sim_calm && sim_below(1000000) < per_million;
}

const char *sim_dir(void)
{
    return dir;
}

/* ---- what happened --------------------------------------------------------------------------- */

static void note(int64_t job, const char *fmt, va_list args)
{
    notes[n_notes % NOTES].job = job;
    notes[n_notes % NOTES].at_ms = sim_now;
    vsnprintf(notes[n_notes % NOTES].text, NOTE_SIZE, fmt, args);
    if (loud) printf("%10lld %s\n", (long long)sim_now, notes[n_notes % NOTES].text);
    n_notes++;
}

void sim_note(int64_t job, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    note(job, fmt, args);
    va_end(args);
}

/* Prints the last notes about the job, together with the notes that are not about a job. */
static void show_notes(int64_t job)
{
    int64_t from = n_notes;
    for (int n = 0; from > 0 && n_notes - from < NOTES - 1 && n < SHOWN; from--)
        n += !notes[(from - 1) % NOTES].job || !job || notes[(from - 1) % NOTES].job == job;
    for (; from < n_notes; from++)
        if (!notes[from % NOTES].job || !job || notes[from % NOTES].job == job)
            printf("  %10lld %s\n", (long long)notes[from % NOTES].at_ms, notes[from % NOTES].text);
}

void sim_broken(const char *rule, int64_t job, const char *fmt, ...)
{
    char text[NOTE_SIZE];
    va_list args;
    if (broken) return; /* only the first violation is shown */
    broken = true;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(broken_rule, sizeof broken_rule, "%s", rule);
    if (muted) return;
    printf("broken %s: %s\n  replay: sim %llu %lld\n", rule, text, (unsigned long long)seed,
           (long long)step);
    show_notes(job);
    fflush(stdout);
}

bool sim_is_broken(void)
{
    return broken;
}

void log_init(const char *program)
{
}

void log_line(enum log_level level, const char *name, const char *fmt, ...)
{
    char text[NOTE_SIZE];
    va_list args;
    if (level < LOG_INFO || (level == LOG_INFO && !loud)) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sim_note(0, "log %s %s", name, text);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static int64_t for_a_while(void)
{
    return sim_now + 200 + sim_below(sim_below(3) ? 4000 : 40000);
}

static void inject(enum fault f)
{
    const int node = sim_below(SIM_LIAR);
    faults[f]++;
    n_faults++;
    sim_note(0, "fault: %s", fault_names[f]);
    switch (f) {
    case SEQD_KILL: seqd_kill(false); return;
    case SEQD_POWER: seqd_kill(true); return;
    case SEQD_PAUSE: seqd_pause(for_a_while()); return;
    case SEQD_QUIT: seqd_quit(); return;
    case AGENT_KILL: node_kill(node); return;
    case AGENT_PAUSE: node_pause(node, for_a_while()); return;
    case GANG_KILL: gang_kill_any(node); return;
    case GANG_PAUSE: gang_pause_any(node, for_a_while()); return;
    case CUT: net_cut(node, sim_below(3) > 0, sim_below(3) > 0, for_a_while()); return;
    case BREAK: net_break(node); return;
    case FULL:
        disk.room = sim_below(64 << 10);
        full_until_ms = for_a_while();
        return;
    case DISK_FAILS:
        disk.fail_in = 1 + sim_below(40);
        disk.shorter = sim_below(2);
        return;
    case SYNC_FAILS: disk.no_sync = true; return;
    case CLOCK:
        sim_utc += (int64_t)(sim_below(20) - 10) * 3600 * 1000 * (1 + sim_below(48));
        return;
    case LEAVE: node_leave(node, for_a_while()); return;
    case GPU: node_gpu(node, sim_below(SIM_GPUS), 1 + sim_below(3), for_a_while()); return;
    case AGENT_LEAVES: node_quit(node); return;
    case N_FAULTS: return;
    }
}

static void mend(void)
{
    net_mend();
    disk.room = -1;
    disk.fail_in = 0;
    disk.no_sync = false;
    seqd_pause(0);
    for (int i = 0; i < SIM_LIAR; i++) {
        if (node_paused(i) > sim_now) node_pause(i, sim_now);
        for (int k = 0; k < SIM_GPUS; k++) node_gpu(i, k, 0, sim_now);
    }
}

/* ---- one seed -------------------------------------------------------------------------------- */

static void turn(void)
{
    if (disk.room >= 0 && sim_now >= full_until_ms) disk.room = -1;
    clients_turn(!sim_calm);
    if (sim_below(2)) seqd_turn();
    nodes_turn();
    seqd_turn();
    gangs_turn();
    liar_turn();
    if (step % 8 == 0) check_rows();
    check_truth();
}

static void advance(int64_t ms)
{
    sim_now += ms;
    sim_utc += ms;
    step++;
}

static void begin(uint64_t s)
{
    char path[96];
    seed = s;
    sim_tight = s % 4 >= 2;
    state = s * 0x2545f4914f6cdd1du + 1;
    scratch_dir(dir, sizeof dir, "sim");
    snprintf(path, sizeof path, "%s/seqd.db", dir); /* store_check asks for its size */
    FILE *f = fopen(path, "we");
    if (!f || fclose(f)) abort();
    sim_now = 1000000;
    sim_utc = 1790000000000;
    sim_calm = broken = false;
    sim_tls = (s % 8 | 2) == 3;
    step = n_notes = full_until_ms = 0;
    disk_reset();
    check_reset();
    net_reset();
    seqd_reset();
    gangs_reset();
    clients_reset();
    liar_reset();
    nodes_reset(sim_below(3) ? 0 : 1 + sim_below(SIM_GPUS));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    return remove(path);
}

static void end(void)
{
    nodes_end();
    liar_stop();
    gangs_end();
    seqd_kill(false);
    check_close();
    disk_reset();
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void pass(int64_t ms)
{
    for (const int64_t end_ms = sim_now + ms; sim_now < end_ms && !broken;) {
        advance(50 + sim_below(100));
        turn();
    }
}

/* Lets all jobs end, and lets every node join once more. After that, nothing may happen. */
static void be_still(void)
{
    for (int i = 0; i < SIM_LIAR; i++) node_forget(i);
    pass(STILL_JOIN_MS);
    still_begin();
    pass(STILL_MS);
    if (!broken) still_end();
}

/* Runs one seed, at first with the kinds of faults that the seed draws, and then without
 * faults. */
static void run(uint64_t s, int64_t max_steps)
{
    begin(s);
    uint64_t kinds = sim_random() | (uint64_t)1 << sim_below(N_DRAWN);
    if (getenv("SEQD_SIM_KINDS")) kinds = strtoull(getenv("SEQD_SIM_KINDS"), NULL, 0);
    /* Agents leave only in every fifth seed. The events of all other seeds must not change,
     * because some of these seeds are kept as cases. */
    const bool leaves = s % 5 == 1 && kinds >> AGENT_LEAVES & 1;
    const int every_ms = 300 + sim_below(3000);
    const int64_t calm_ms = sim_now + 60000 + sim_below(240000);
    int64_t next_ms = sim_now + 5000;
    while (!broken && sim_now < calm_ms && step < max_steps) {
        advance(1 + sim_below(40));
        const enum fault f = (enum fault)sim_below(N_DRAWN);
        if (sim_now >= next_ms && kinds >> f & 1 && !(sim_tls && f == CLOCK)) {
            inject(leaves && sim_below(3) == 0 ? AGENT_LEAVES : f);
            next_ms = sim_now + sim_below(2 * every_ms);
        }
        turn();
    }
    sim_note(0, "calm");
    sim_calm = true;
    mend();
    bool quiet = false;
    for (const int64_t end_ms = sim_now + CALM_MS; !broken && step < max_steps && !quiet;) {
        advance(10 + sim_below(sim_now > calm_ms + 600000 ? 1000 : 100));
        turn();
        quiet = sim_now > calm_ms + 30000 && seqd_up() && check_ended() && !gangs_alive();
        if (sim_now > end_ms) break;
    }
    if (!broken && step < max_steps) check_at_end();
    if (!broken && step < max_steps && sim_tls) be_still();
    end();
}

/* Runs a cluster with some jobs, and then the walk. */
static int walk(void)
{
    oom.told = sim_calloc(1, sizeof *oom.told);
    begin(5);
    while (sim_now < 1030000) {
        advance(1 + sim_below(40));
        turn();
    }
    const int rc = oom_walk();
    oom.at = 0;
    end();
    return rc;
}

/* ---- injected faults of the product ---------------------------------------------------------- */

#ifdef SEQD_MUTANTS
enum { MUTANT_SEEDS = 60 };

/* Tells whether random schedules show this injected fault too seldom. test_seqd_jobs or
 * test_seqd_gpus finds such a fault at once. */
static bool caught_elsewhere(int mutant)
{
    return mutant == MUTANT_CANCEL_LOST || mutant == MUTANT_STALE_FREE;
}

/* Reports, for each mutant that the simulator has to find, the rule that it breaks and the number
 * of seeds that were needed. */
static int run_mutants(void)
{
    int missed = 0, n = 0;
    muted = true;
    for (int m = MUTANT_CONTROL; m < MUTANT_N; m++) {
        if (caught_elsewhere(m)) continue;
        n++;
        char by[96] = "sim: every rule held";
        bool caught = false;
        mutant_choose(m);
        for (int s = 1; s <= MUTANT_SEEDS && !caught; s++) {
            run((uint64_t)s, INT64_MAX);
            caught = broken;
            if (caught) snprintf(by, sizeof by, "rule %s, seed %d", broken_rule, s);
        }
        mutant_report(m, caught, by);
        verify_blind(m);
        missed += !caught;
    }
    printf("sim: %d passed, %d failed\n", n - missed, missed);
    return missed ? 1 : 0;
}
#endif

/* ---- main ------------------------------------------------------------------------------------ */

static void report(int64_t seeds, const int count[], int64_t rows)
{
    printf("%lld faults in %lld seeds, %lld events:", (long long)n_faults, (long long)seeds,
           (long long)rows);
    for (int i = JOB_SUCCEEDED; i < JOB_STATE_N; i++)
        printf(" %d %s", count[i], job_state_name((enum job_state)i));
    printf("\n");
    for (int i = 0; i < N_FAULTS; i++) printf("%8lld %s\n", (long long)faults[i], fault_names[i]);
}

int main(int argc, char **argv)
{
    const bool many = argc > 2 && !strcmp(argv[1], "--faults");
    const int64_t want = many ? strtoll(argv[2], NULL, 10) : 1;
    int64_t seeds = 0, n_broken = 0, rows = 0, cut_logs = 0;
    int count[JOB_STATE_N] = {0};
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    json_init();
    disk_install();
    loud = getenv("SEQD_SIM_LOUD") != NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: sim SEED [STEPS] | sim --faults N [FIRST_SEED]\n");
        return 2;
    }
#ifdef SEQD_MUTANTS
    if (!strcmp(argv[1], "--mutants")) return run_mutants();
#endif
    if (!strcmp(argv[1], "--oom")) return walk();
    uint64_t s = strtoull(many ? argc > 3 ? argv[3] : "1" : argv[1], NULL, 10);
    const int64_t steps = !many && argc > 2 ? strtoll(argv[2], NULL, 10) : INT64_MAX;
    do {
        run(s++, steps);
        seeds++;
        n_broken += broken;
        check_report(count, &rows, &cut_logs);
    } while (many && n_faults < want && n_broken < 3);
    report(seeds, count, rows);
    if (cut_logs) printf("%8lld logs cut by a full disk\n", (long long)cut_logs);
    printf("sim: %lld passed, %lld failed\n", (long long)(seeds - n_broken), (long long)n_broken);
    return n_broken ? 1 : 0;
}
