/* capture FILE: writes every byte that crosses an interface of this network namespace to FILE,
 * until SIGTERM. It prints "up" once it listens. Scripts use it to check that certain words are
 * never sent. */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void on_end(int signo)
{
    (void)signo;
    ended = 1;
}

int main(int argc, char **argv)
{
    static char packet[1 << 17];
    const struct sigaction end = {.sa_handler = on_end}; /* recv is interrupted */
    const int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), room = 64 << 20;
    FILE *out = argc == 2 ? fopen(argv[1], "we") : NULL;
    if (fd < 0 || !out) return perror("capture"), 1;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    sigaction(SIGTERM, &end, NULL);
    puts("up");
    fflush(stdout);
    while (!ended) {
        const ssize_t n = recv(fd, packet, sizeof packet, 0);
        if (n > 0 && fwrite(packet, 1, (size_t)n, out) != (size_t)n) return perror(argv[1]), 1;
    }
    return fclose(out) ? 1 : 0;
}
