/* confine.h: the sandbox of an attempt's ranks, which each rank enters between fork and exec. A
 * rank reaches the system's programs and libraries, the roots without their private directories,
 * its grants and its prepared data; it writes in its job's directory and beneath the writable
 * roots. It reaches no process outside, no other port and no other file. deploy/README.md has
 * the list for operators. tested: tests/agent/test_gang_sandbox.c */
#ifndef SEQD_GANG_CONFINE_H
#define SEQD_GANG_CONFINE_H

#include "api/core/err.h"
#include "api/core/gang_start.h"
#include "api/core/landlock.h"
#include "api/core/seccomp.h"

struct confine {
    struct landlock domain;
    struct seccomp_options calls;
    bool filtered; /* whether system calls are filtered */
    bool ports;    /* whether ranks restrict themselves to the ports of their peers */
};
#define CONFINE_NONE ((struct confine){.domain = {.fd = -1}})

/* Makes the rules for the ranks of the attempt in *c, which must be CONFINE_NONE before the call.
 * The caller must call confine_close, even after a failure. Leaves *c empty if start->sandbox says
 * that the ranks have none. Fails with ERR_UNSUPPORTED if the sandbox is required and this kernel
 * lacks a part of it, and otherwise as landlock_open does. */
int confine_open(struct confine *c, const struct gang_start *start, struct err *e);
/* Enters the sandbox, in the child that becomes the rank. Returns -1 with errno after a failure. */
int confine_enter(const struct confine *c);
void confine_close(struct confine *c);

#endif
