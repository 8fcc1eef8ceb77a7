/* rank.c: a run whose nodes have processes of their own. Finds rank 0, and runs the agent of one
 * of the other ranks. */
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/clock.h"
#include "daemon/run/one_run.h"
#include "daemon/run/run.h"

enum {
    CONNECT_MS = 2000,
    AGAIN_MS = 500, /* between two tries to find rank 0 */
    LEAVE_MS = 120000
};

/* Writes "10.0.0.1:7434" or "[fd00::1]:7434". Returns false for an address that has a scope. */
static bool numeric(const struct addrinfo *at, char *out, size_t size)
{
    char host[ADDRESS_HOST_SIZE], port[8];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) ||
        strchr(host, '%'))
        return false;
    snprintf(out, size, at->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return true;
}

/* Tells whether the address is one of this machine. */
static bool is_own(const struct addrinfo *at)
{
    struct sockaddr_storage a;
    memcpy(&a, at->ai_addr, at->ai_addrlen);
    memset((unsigned char *)&a + 2, 0,
           2); /* any port, which has the same offset in both families */
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool own = fd >= 0 && !bind(fd, (struct sockaddr *)&a, at->ai_addrlen);
    if (fd >= 0) close(fd);
    return own;
}

static bool is_reached(const char *address, struct err *e)
{
    const int fd = address_connect(address, CONNECT_MS, e);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Looks up the host of rank 0 once. Rank 0 takes an address of its own, or the first if none is.
 * The others take the first that answers. Returns false with *e if there is none. */
static bool look(struct one_run *r, struct err *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[8], address[sizeof r->nodes];
    bool found = false;
    snprintf(port, sizeof port, "%d", r->o.port);
    const int rc = getaddrinfo(r->o.host, port, &hints, &list);
    if (rc)
        return err_set(e, ERR_IO, "%s does not resolve: %s", r->o.host, gai_strerror(rc)), false;
    err_set(e, ERR_IO, "%s has no address of IPv4 or IPv6", r->o.host);
    *r->nodes = 0;
    for (const struct addrinfo *at = list; at && !found; at = at->ai_next) {
        if (!numeric(at, address, sizeof address)) continue;
        found = r->o.node_rank ? is_reached(address, e) : is_own(at);
        if (found || (!r->o.node_rank && !*r->nodes))
            snprintf(r->nodes, sizeof r->nodes, "%s", address);
    }
    freeaddrinfo(list);
    return found || *r->nodes;
}

int run_find_master(struct one_run *r, struct err *e)
{
    const int64_t until_ms = clock_ms() + r->o.wait_s * 1000;
    while (!r->c.signal && !look(r, e)) {
        if (clock_ms() >= until_ms)
            return err_prefix(e, "--master %s: no rank 0 within --wait %lld s", r->o.master,
                              (long long)r->o.wait_s);
        children_wait(&r->c, AGAIN_MS);
    }
    *e = (struct err){0};
    return 0;
}

static int start_agent(struct one_run *r, struct err *e)
{
    static char orphan_ms[24];
    char program[FILE_PATH_SIZE], config[96], state[FILE_PATH_SIZE], name[32];
    snprintf(config, sizeof config, "%s/none.toml", r->dir);
    snprintf(name, sizeof name, "rank-%lld", (long long)r->o.node_rank);
    snprintf(orphan_ms, sizeof orphan_ms, "%lld", (long long)r->o.wait_s * 1000);
    if (file_join(program, e, "%s/seqw", r->bin)) return -1;
    if (file_join(state, e, "%s/nodes/%s", r->state, name)) return -1;
    char *argv[40 + 2 * OPTION_LIST] = {
        program, "--config", config, "--auto",     "--connect", r->nodes,      "--name",
        name,    "--state",  state,  "--join-key", r->key,      "--orphan-ms", orphan_ms};
    run_agent_words(r, argv, 14);
    return run_start_logged(r, AGENTS, SIGTERM, name, argv, -1, e);
}

/* Waits for the end of the agent. At the first signal the agent leaves: its jobs save, and rank 0
 * ends the run. */
static void wait_agent(struct one_run *r)
{
    bool left = false;
    while (children_runs(&r->c, AGENTS)) {
        children_wait(&r->c, LOOK_MS);
        if (!r->c.signal || left) continue;
        left = true;
        fprintf(stderr, "seqd run: rank %lld leaves: the job saves\n", (long long)r->o.node_rank);
        children_stop(&r->c, AGENTS, LEAVE_MS);
    }
}

int run_rank(struct one_run *r, struct err *e)
{
    char name[32];
    if (run_find_master(r, e)) return -1;
    if (r->c.signal) return RUN_AGAIN;
    fprintf(stderr, "seqd run: rank %lld of %lld dials %s\n", (long long)r->o.node_rank,
            (long long)r->o.nodes, r->nodes);
    if (start_agent(r, e)) return -1;
    wait_agent(r);
    const int status = r->c.child[AGENTS].status;
    if (r->c.signal && !status) return RUN_AGAIN;
    /* codes that rank 0 has sent (QUIT) */
    if (!status || status == ENDS_FAILED || status == ENDS_CANCELLED || status == RUN_AGAIN ||
        status > 128)
        return status;
    snprintf(name, sizeof name, "rank-%lld", (long long)r->o.node_rank);
    run_say_log(r, name);
    return err_set(e, ERR_IO,
                   "rank 0 failed, was not reached for --wait %lld s, or has another SPEC, --nodes "
                   "or --join-key: the agent's log is above",
                   (long long)r->o.wait_s);
}
