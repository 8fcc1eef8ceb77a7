/* models.h: `seqrank --models [--first=N] ROOT ...` lists the model directories beneath the roots,
 * from number N on (counted from 0). They are in the order of a walk, which goes through one root
 * after the other, and through each root in ascending order of paths, compared part by part. So
 * even if limits end a walk early, each model has the same number as in a complete walk.
 * It prints one JSON object on one line: {"models": [...], "incomplete": ..., "next": N}. "models"
 * has reports as in report.h, in that order, each with the first MODELS_FAULTS faults.
 * "incomplete" is the reason why there may be more models that no page lists, or null. "next" is N
 * of the next page, and is absent on the last page. The exit status is 0, or 1 if the answer
 * cannot be written, or 2 for wrong arguments.
 *
 * A model directory has model.safetensors or its index, or a config.json together with a file of a
 * tokenizer ("tokeniz...") or a generation_config.json. If a directory without a config.json has
 * exactly one *.gguf, that file is the directory's model; if it has several, each of them is
 * listed by its own path. Directories inside the directory of a model are not searched, nor are
 * private ones (api/core/beneath.h). Links to directories below a root are not followed, and a
 * directory is visited only once, however it is reached.
 *
 * The files in the directories may be malicious. So a separate process with limited memory and
 * time reads each directory. The processes run one after the other. If a process dies, that counts
 * only as a fault of its directory. The whole command has the limits below: 24 s, and an answer of
 * MODELS_SIZE bytes. If a limit ends an answer, the answer has at least one model, and the next
 * page has the remaining models. tested: tests/engine/test_models.c, tests/scripts/models.sh */
#ifndef SEQD_RANK_MODELS_H
#define SEQD_RANK_MODELS_H

#include <stdint.h>
#include "api/core/rank.h"

#define MODELS_MAX     RANK_MODELS_PAGE /* most models of an answer: 256 of 4 KiB fill it */
#define MODELS_FOUND   RANK_MODELS      /* most models of all pages, with 80 MiB of paths */
#define MODELS_SIZE    (1 << 20)        /* most bytes of the answer */
#define MODELS_DEPTH   8                /* levels of directories below a root */
#define MODELS_DIRS    20000            /* directories opened, all roots together */
#define MODELS_ENTRIES 400000           /* names read in them */
#define MODELS_FAULTS  3

struct models_limits {
    int64_t walk_ms, one_ms, all_ms; /* time limits for the search of directories, for one model,
                                      * and for everything */
    int64_t memory_size;             /* most bytes of data of one process; 0 means no limit */
};
/* The limits are 6 s, 6 s, 24 s and 3 GiB. For comparison, a tokenizer.json of 49 MB took 2.7 s
 * and 85 MB on a busy core. */
extern const struct models_limits models_limits;

int models_main(const char *const *roots, int n_roots);
/* Lists models as the command does, from number `first` on but with the given limits, and writes
 * the answer to out. Returns its length, or -1 if it does not fit. */
int64_t models_write(const char *const *roots, int n_roots, int64_t first,
                     const struct models_limits *l, char *out, int64_t size);

#endif
