/* process.h: a process as /proc shows it. A pid is used again after its process has
 * ended; with the start time it names one process for good. */
#ifndef SEQD_CORE_PROCESS_H
#define SEQD_CORE_PROCESS_H

#include <stdint.h>

struct process_stat {
    char state;         /* 'R', 'S', 'T', 'Z', ... */
    int64_t cpu_ms;     /* user and system time so far */
    int64_t start_time; /* clock ticks after boot */
};

/* Call this first in a program. Its descriptors 0 to 2 are open from its first instruction on: a
 * closed one is opened on /dev/null. Otherwise files that libraries open before main would get
 * these numbers, and with them the text that the program prints. A write past RLIMIT_FSIZE fails
 * with EFBIG instead of killing the program. */
void process_begin(void);
/* Reads the state of a process. -1: there is no such process. */
int process_stat(int pid, struct process_stat *out);
/* Returns the bytes that its calls of read and write have moved so far, and its pages that came
 * from files or went there; 0: the kernel does not say. */
int64_t process_moved(int pid);
/* Returns 1 when the process with this pid and start time exists and is not a zombie. */
int process_alive(int pid, int64_t start_time);

#endif
