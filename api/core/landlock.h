/* landlock.h: a domain of Landlock, which a process enters for good, with all that it starts. In
 * the domain it reaches only the files that were allowed beforehand. A process cannot trace
 * processes outside its domain, or read their memory, even if they belong to the same user.
 *
 * The kernel's version of Landlock, its ABI, decides which of these a domain restricts:
 *   2  files and directories (ABI 1 forbids every rename into another directory: it counts as none)
 *   3  truncating them    4  ports of TCP    5  ioctl of devices
 *   6  signals to processes outside, and abstract Unix sockets outside
 * Landlock does not restrict stat, chmod, chown, or connect to a Unix socket's path (seccomp.h).
 * tested: tests/core/test_sandbox.c */
#ifndef SEQD_CORE_LANDLOCK_H
#define SEQD_CORE_LANDLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

/* ABIs that the rest of the program asks for */
enum { LANDLOCK_FILES = 2, LANDLOCK_PORTS = 4, LANDLOCK_SIGNALS = 6, LANDLOCK_THREADS = 8 };

/* Returns the ABI, or 0 if the kernel has no Landlock. */
int landlock_abi(void);

enum landlock_files {
    LANDLOCK_READ,  /* read, list and execute */
    LANDLOCK_NAMES, /* list directories */
    LANDLOCK_WRITE, /* read and list; write, make, rename and remove files, directories, links */
    LANDLOCK_DEVICE /* read, write, and ioctl */
};

struct landlock_options {
    bool files;    /* no file but those that are allowed */
    bool bind;     /* no port of TCP to bind but those that are allowed */
    bool connect;  /* no port of TCP to connect to but those that are allowed */
    bool signals;  /* no signal to a process outside */
    bool abstract; /* no abstract Unix socket that a process outside has made */
};

struct landlock {
    int fd; /* the rules; -1 if there are none */
    int abi;
    uint64_t files;
};
#define LANDLOCK_NONE ((struct landlock){.fd = -1})

/* Makes rules that allow nothing. Options that the kernel does not know are left out. l->fd stays
 * -1 if nothing is left. Fails as err_errno does. */
int landlock_open(struct landlock *l, const struct landlock_options *o, struct err *e);
/* Allows a file, or all that is beneath a directory, links followed. A path that does not exist or
 * cannot be reached is left out. Fails as err_errno does. */
int landlock_allow(const struct landlock *l, const char *path, enum landlock_files what,
                   struct err *e);
/* Allows the open file or directory `fd`, which may be open with O_PATH. */
int landlock_allow_fd(const struct landlock *l, int fd, enum landlock_files what, struct err *e);
/* Allows a port. Binding port 0 is to let the kernel choose. */
int landlock_allow_bind(const struct landlock *l, int port, struct err *e);
int landlock_allow_connect(const struct landlock *l, int port, struct err *e);
/* Enters the domain, with the calling thread only. The process must have set no_new_privs. Safe
 * after fork. Returns -1 with errno after a failure. */
int landlock_enter(const struct landlock *l);
/* Enters the domain with all threads of this process. No thread may be started or end meanwhile.
 * Before ABI 8 the kernel cannot do it, and each thread does it in a
 * handler of SIGUSR2. Fails
 * with ERR_TIMEOUT if a thread does not within 5 s, and otherwise as err_errno does. */
int landlock_enter_all(const struct landlock *l, struct err *e);
void landlock_close(struct landlock *l);

#endif
