/* seccomp.h: a filter of system calls, which a process sets for good, for all that it starts. It
 * refuses, with EPERM, the calls by which a process reaches into others (ptrace, memory and
 * descriptors of others, IPC of System V, limits of others), changes the machine (mounts,
 * namespaces, modules, clocks, keys), or asks parts of the kernel that are known for their faults
 * (bpf, io_uring, perf, userfaultfd). It refuses those calls on paths that Landlock does not
 * restrict (truncate, chmod, chown, extended attributes, times). Calls of another architecture are
 * refused, those of x32 too. tested: tests/core/test_sandbox.c */
#ifndef SEQD_CORE_SECCOMP_H
#define SEQD_CORE_SECCOMP_H

#include <stdbool.h>

struct seccomp_options {
    bool processes; /* may start processes, and not only threads */
    bool tcp;       /* may make stream sockets of INET and INET6, for TCP */
    bool fabric;    /* may make Unix sockets, datagrams and NETLINK, as NCCL and CUDA do */
};

/* Returns 1 if the kernel has filters and this build has one for the architecture. */
int seccomp_works(void);
/* Sets the filter for the calling thread. The process must have set no_new_privs. Safe after fork.
 * Returns -1 with errno after a failure. */
int seccomp_enter(const struct seccomp_options *o);

#endif
