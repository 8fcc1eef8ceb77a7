/* process.h: a process as /proc shows it. The kernel uses a pid again after its process has ended.
 * A pid together with a start time names one process for ever. */
#ifndef SEQD_CORE_PROCESS_H
#define SEQD_CORE_PROCESS_H

#include <stdint.h>

struct process_stat {
    char state;         /* 'R', 'S', 'T', 'Z', ... */
    int64_t cpu_ms;     /* user and system time so far */
    int64_t start_time; /* clock ticks after boot */
};

/* Prepares a program: call it first. Opens descriptors 0 to 2 on /dev/null if they are closed,
 * even before libraries run. Otherwise a file that a library opens could get such a number, and
 * then the program's output. A write past RLIMIT_FSIZE fails with EFBIG instead of killing the
 * program. */
void process_begin(void);
/* Reads the state of a process. -1: there is no such process. */
int process_stat(int pid, struct process_stat *out);
/* Returns 1 when a thread of the process runs, or waits for a processor. */
int process_runnable(int pid);
/* Returns the bytes that the process has read and written so far: the sum of its read and write
 * calls and of its pages from and to storage. 0: the kernel does not tell. */
int64_t process_moved(int pid);
/* Returns 1 when the process with this pid and start time exists and is not a zombie. */
int process_alive(int pid, int64_t start_time);

#endif
