/* models.h: `seqrank --models [--first=N] ROOT ...`: lists the model directories beneath the roots,
 * from number N on (from 0). Their order is that of a walk: root after root, and in each ascending
 * by path, part by part. So a walk that its limits cut numbers its models as a whole one does.
 *
 * Prints one JSON object on one line: {"models": [as report.h, in that order, each with the first
 * MODELS_FAULTS faults], "incomplete": why there may be more that no page lists, or null,
 * "next": N of the next page; absent on the last}. Exit status 0, 1 if the answer cannot be
 * written, 2 for wrong arguments.
 *
 * A model directory has model.safetensors or its index, or a config.json beside a file of a
 * tokenizer ("tokeniz...") or a generation_config.json. One *.gguf in a directory without a
 * config.json is that directory's model; if there are more, each is listed by its own path.
 * Directories inside a model's are not searched, nor are private ones (api/core/beneath.h). Links
 * to directories below a root are not followed, and a directory is seen once, however it is
 * reached.
 *
 * The files in the directories are hostile: each directory is read by a process of its own, one
 * after the other, of bounded memory and time, and the death of that process is a fault of that
 * directory alone. The limits below bound the whole: 24 s, an answer of MODELS_SIZE. An answer that
 * they end has one model at least, and the next page has the rest.
 * tested: tests/engine/test_models.c, tests/scripts/models.sh */
#ifndef SEQD_RANK_MODELS_H
#define SEQD_RANK_MODELS_H

#include <stdint.h>
#include "api/core/rank.h"

#define MODELS_MAX     RANK_MODELS_PAGE /* models of an answer: 256 of 4 KiB fill it */
#define MODELS_FOUND   RANK_MODELS      /* models of all pages: 80 MiB of the longest paths */
#define MODELS_SIZE    (1 << 20)        /* bytes of the answer at most */
#define MODELS_DEPTH   8                /* levels of directories below a root */
#define MODELS_DIRS    20000            /* directories opened, all roots together */
#define MODELS_ENTRIES 400000           /* names read in them */
#define MODELS_FAULTS  3

struct models_limits {
    int64_t walk_ms, one_ms, all_ms; /* time limits: search of directories; one model; all */
    int64_t memory_size;             /* most bytes of data of one process; 0: no limit */
};
/* The limits are 6 s, 6 s, 24 s and 3 GiB. A tokenizer.json of 49 MB took 2.7 s and 85 MB on a busy
 * core. */
extern const struct models_limits models_limits;

int models_main(const char *const *roots, int n_roots);
/* Does the same from model `first` on with other limits, into out. Returns the length, or -1: it
 * does not fit. */
int64_t models_write(const char *const *roots, int n_roots, int64_t first,
                     const struct models_limits *l, char *out, int64_t size);

#endif
