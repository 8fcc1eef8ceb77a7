/* resident.c: reads the sizes of /proc/self/status, and counts a segment's touched pages in
 * /proc/self/pagemap. */
#include "worker/rank/resident.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Counts the bytes of pages at [from, from + size) that this process has touched. In pagemap
 * each page has a word. The highest bit of the word is set if the page was touched. */
static int64_t touched(const void *from, int64_t size)
{
    enum { WORDS = 512 };
    const int64_t page = sysconf(_SC_PAGESIZE), n = size / page;
    uint64_t word[WORDS];
    int64_t sum = 0;
    const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (int64_t i = 0; fd >= 0 && i < n;) {
        const int64_t want = n - i < WORDS ? n - i : WORDS;
        const ssize_t got = pread(fd, word, (size_t)want * sizeof *word,
                                  (off_t)(((intptr_t)from / page + i) * (int64_t)sizeof *word));
        if (got < (ssize_t)sizeof *word) break;
        const int64_t words = got / (ssize_t)sizeof *word;
        for (int64_t k = 0; k < words; k++) sum += (int64_t)(word[k] >> 63) * page;
        i += words;
    }
    if (fd >= 0) close(fd);
    return sum;
}

void resident_read(const void *segment, int64_t size, struct resident *out)
{
    long long anonymous = 0, files = 0, shared = 0;
    char line[256];
    struct rusage u;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "RssAnon: %lld", &anonymous);
        sscanf(line, "RssFile: %lld", &files);
        sscanf(line, "RssShmem: %lld", &shared);
    }
    if (f) fclose(f);
    getrusage(RUSAGE_SELF, &u);
    const int64_t segments = (int64_t)shared * 1024;
    const int64_t pages = segment ? touched(segment, size) : 0;
    const int64_t mine = pages < segments ? pages : segments;
    *out = (struct resident){.own = (int64_t)anonymous * 1024 + mine,
                             .other_ranks = segments - mine,
                             .files = (int64_t)files * 1024,
                             .peak = (int64_t)u.ru_maxrss * 1024};
}
