/* scratch.h: makes a folder for tests that write much data. These tests do not check the disk
 * itself, so the folder is in memory if there is enough room. The 64 MiB that a container has by
 * default in /dev/shm are not enough. */
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
