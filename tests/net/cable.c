/* cable: simulates a bad cable between two network interfaces, for tests/scripts/nodes.sh. It
 * forwards the frames of each interface to the opposite one after a delay, loses some frames, and
 * can be cut.
 *
 *     cable IF1 IF2 [--delay-us MIN MAX] [--loss PERMILLE] [--seed N]
 *
 * The seed determines the delay or the loss of each frame. Frames keep their order, as in a real
 * cable. SIGUSR1 cuts the cable, which loses the frames that it contains and all frames that
 * arrive until SIGUSR2 repairs the cable. It prints "up", "cut" or "mended" at each change.
 * SIGTERM makes it print a line of counts and exit. It also exits when its parent does.
 *
 * The interfaces are ends of veth pairs. Their frames may be segments that are larger than the
 * MTU, and their checksums may not have been computed yet. PACKET_VNET_HDR passes on this
 * information, so that the receiving network stack accepts the frames. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_SIZE (96 << 10) /* room for a segment of 64 KiB, its headers and the vnet header */
#define QUEUE      4096       /* frames in the cable in each direction; further ones are lost */

struct frame {
    int64_t due_us;
    size_t size;
    char *data; /* owns */
};

struct way { /* one direction */
    int from, to;
    struct frame ring[QUEUE];
    unsigned first, n;
    int64_t last_due_us, n_sent, n_lost;
};

static struct {
    int64_t min_us, max_us, loss_permille;
    uint64_t seed;
    bool cut;
    struct way way[2];
} cable = {.seed = 1};

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* splitmix64 */
static uint64_t random_next(void)
{
    uint64_t z = cable.seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void die(const char *what)
{
    fprintf(stderr, "cable: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int interface_open(const char *name)
{
    int one = 1, size = 8 << 20;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    at.sll_ifindex = (int)if_nametoindex(name);
    if (fd < 0 || !at.sll_ifindex) die(name);
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one)) die("PACKET_VNET_HDR");
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one))
        die("PACKET_IGNORE_OUTGOING");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (bind(fd, (struct sockaddr *)&at, sizeof at)) die(name);
    return fd;
}

static void take(struct way *w)
{
    static char buf[FRAME_SIZE];
    for (ssize_t n; (n = recv(w->from, buf, sizeof buf, 0)) > 0;) {
        bool lost = (int64_t)(random_next() % 1000) < cable.loss_permille;
        int64_t spread = cable.max_us - cable.min_us + 1;
        int64_t due = now_us() + cable.min_us + (int64_t)(random_next() % (uint64_t)spread);
        if (cable.cut || lost || w->n == QUEUE) {
            w->n_lost++;
            continue;
        }
        if (due < w->last_due_us) due = w->last_due_us;
        w->last_due_us = due;
        struct frame *f = &w->ring[(w->first + w->n++) % QUEUE];
        *f = (struct frame){due, (size_t)n, malloc((size_t)n)};
        if (!f->data) die("frame");
        memcpy(f->data, buf, (size_t)n);
    }
}

/* Sends the frames that are due, or drops all of them while the cable is cut. Returns when the
 * next frame is due, or -1. */
static int64_t give(struct way *w)
{
    while (w->n) {
        struct frame *f = &w->ring[w->first];
        if (!cable.cut && f->due_us > now_us()) return f->due_us;
        if (cable.cut || send(w->to, f->data, f->size, 0) < 0)
            w->n_lost++;
        else
            w->n_sent++;
        free(f->data);
        w->first = (w->first + 1) % QUEUE;
        w->n--;
    }
    return -1;
}

static void say(const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
}

static bool on_signal(int fd)
{
    struct signalfd_siginfo s;
    while (read(fd, &s, sizeof s) == sizeof s) {
        if (s.ssi_signo == SIGTERM) return false;
        cable.cut = s.ssi_signo == SIGUSR1;
        say(cable.cut ? "cut" : "mended");
    }
    return true;
}

static int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) die("signalfd");
    return fd;
}

static void options(int argc, char **argv)
{
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--delay-us") && i + 2 < argc) {
            cable.min_us = atoll(argv[++i]);
            cable.max_us = atoll(argv[++i]);
        } else if (!strcmp(argv[i], "--loss") && i + 1 < argc) {
            cable.loss_permille = atoll(argv[++i]);
        } else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
            cable.seed = strtoull(argv[++i], NULL, 10);
        } else {
            argc = 0;
        }
    }
    if (argc >= 3 && cable.min_us >= 0 && cable.max_us >= cable.min_us) return;
    fputs("usage: cable IF1 IF2 [--delay-us MIN MAX] [--loss PERMILLE] [--seed N]\n", stderr);
    exit(2);
}

int main(int argc, char **argv)
{
    options(argc, argv);
    int a = interface_open(argv[1]), b = interface_open(argv[2]), signals = signals_open();
    cable.way[0].from = cable.way[1].to = a;
    cable.way[0].to = cable.way[1].from = b;
    say("up");
    for (bool run = true; run;) {
        int64_t next = -1;
        for (int i = 0; i < 2; i++) {
            int64_t due = give(&cable.way[i]);
            if (due >= 0 && (next < 0 || due < next)) next = due;
        }
        int64_t wait_us = next < 0 ? -1 : next - now_us();
        if (next >= 0 && wait_us < 0) wait_us = 0;
        struct timespec t = {wait_us / 1000000, wait_us % 1000000 * 1000};
        struct pollfd p[3] = {{a, POLLIN, 0}, {b, POLLIN, 0}, {signals, POLLIN, 0}};
        ppoll(p, 3, next < 0 ? NULL : &t, NULL);
        take(&cable.way[0]);
        take(&cable.way[1]);
        if (p[2].revents) run = on_signal(signals);
    }
    printf("sent %lld %lld lost %lld %lld\n", (long long)cable.way[0].n_sent,
           (long long)cable.way[1].n_sent, (long long)cable.way[0].n_lost,
           (long long)cable.way[1].n_lost);
    return 0;
}
