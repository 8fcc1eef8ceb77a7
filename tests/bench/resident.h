/* resident.h: the largest amount of memory that this process had resident, as counted by the
 * system. A bench that measures all its figures in one process calls resident_reset() before each
 * figure. */
#ifndef SEQD_BENCH_RESIDENT_H
#define SEQD_BENCH_RESIDENT_H

#include <stdint.h>
#include <stdio.h>

/* Forgets the largest size so far. If the system has no file for this, or if the process may not
 * write to the file, resident_peak_mib() returns the largest size since the process began. */
static inline void resident_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

/* Returns the largest size in MiB, or 0 if the system does not report it. */
static inline double resident_peak_mib(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[128];
    long kib = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %ld", &kib) != 1) {
    }
    fclose(f);
    return (double)kib / 1024;
}

#endif
