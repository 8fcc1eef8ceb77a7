/* turns.h: measures in turns with other programs, which stay loaded beside this one (peers.py
 * --turns). If the environment has BENCH_TURNS=N, a program prints {"ready":1} after its warmup.
 * It then reads a line from stdin before each of N rounds, and prints a line of JSON after it. */
#ifndef SEQD_BENCH_TURNS_H
#define SEQD_BENCH_TURNS_H

#include <stdio.h>
#include <stdlib.h>

enum { TURNS_MOST = 30 };

/* Returns the number of rounds, or 0 if the program takes no turns. */
static inline int turns_wanted(void)
{
    const char *const text = getenv("BENCH_TURNS");
    const int n = text ? atoi(text) : 0;
    if (text && (n < 1 || n > TURNS_MOST)) {
        fprintf(stderr, "BENCH_TURNS is %s: give 1 to %d\n", text, TURNS_MOST);
        exit(2);
    }
    return n;
}

static inline void turns_ready(void)
{
    printf("{\"ready\":1}\n");
    fflush(stdout);
}

/* Waits for the next turn. Ends the program if there is none. */
static inline void turns_wait(void)
{
    int c;
    while ((c = getchar()) != '\n')
        if (c == EOF) exit(0);
}

#endif
