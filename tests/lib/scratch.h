/* scratch.h: a folder for tests that write much and rely on the order of their writes, not on a
 * disk. It is in memory if there is room for it; a container's default of 64 MiB is too small. */
#ifndef SEQD_TESTS_SCRATCH_H
#define SEQD_TESTS_SCRATCH_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SCRATCH_ROOM (1ull << 30)

static inline void scratch_dir(char *dir, size_t size, const char *name)
{
    struct statvfs v;
    const bool room = !access("/dev/shm", W_OK) && !statvfs("/dev/shm", &v) &&
                      v.f_bavail * v.f_frsize >= SCRATCH_ROOM;
    snprintf(dir, size, "%s/seqd-%s-XXXXXX", room ? "/dev/shm" : "/tmp", name);
    if (!mkdtemp(dir)) abort();
}

#endif
