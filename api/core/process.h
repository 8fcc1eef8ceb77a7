/* process.h: a process as /proc shows it. The kernel may use a pid again after its process has
 * ended, but a pid together with a start time always identifies one process. */
#ifndef SEQD_CORE_PROCESS_H
#define SEQD_CORE_PROCESS_H

#include <stdint.h>

struct process_stat {
    char state;         /* 'R', 'S', 'T', 'Z', ... */
    int64_t cpu_ms;     /* user and system time used so far */
    int64_t start_time; /* clock ticks after boot */
};

/* Prepares a program, which must call this function before any other. If one of the descriptors 0
 * to 2 is closed, it is opened on /dev/null; this happens even before the constructors of the
 * program's libraries run. Otherwise a file that a library opens could get one of these numbers,
 * and the program's output would be written to that file. After the call, a write past
 * RLIMIT_FSIZE fails with EFBIG instead of killing the program. */
void process_begin(void);
/* Lets this process leave no core, because its memory has the requests of clients. If the kernel
 * hands cores to a program, which may ignore the limit, they have registers alone. Programs that
 * the process starts later inherit this. */
void process_hide(void);
/* Reads the state of a process. Returns -1 if there is no such process. */
int process_stat(int pid, struct process_stat *out);
/* Returns 1 if a thread of the process runs or waits for a processor. */
int process_runnable(int pid);
/* Returns the bytes that the process has moved so far. The sum has the bytes of its read and write
 * calls, and the bytes of its pages from and to storage. Returns 0 if the kernel does not report
 * them. */
int64_t process_moved(int pid);
/* Returns how often the process's first thread was given a processor. The number stands still while
 * the process is stopped or waits. Returns 0 if there is no such process. */
int64_t process_switches(int pid);
/* Returns 1 if the process with this pid and start time exists and is not a zombie. */
int process_alive(int pid, int64_t start_time);

#endif
