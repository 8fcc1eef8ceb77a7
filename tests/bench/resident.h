/* resident.h: the most memory that this process had resident, as the system counts it. A bench
 * whose figures are those of one process begins each with resident_reset(). */
#ifndef SEQD_BENCH_RESIDENT_H
#define SEQD_BENCH_RESIDENT_H

#include <stdint.h>
#include <stdio.h>

/* Forgets the largest size until now. Without that file, or the right to write to it, the size
 * stays that of the process's whole life. */
static inline void resident_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

/* Returns the largest size in MiB; 0: the system does not say. */
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
