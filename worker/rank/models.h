/* models.h: `seqrank --models [--first=N] ROOT ...` lists the model directories beneath the
 * roots. It begins with model number N, counted from 0. Models are numbered in the order of a
 * walk. The walk visits the roots in their order. In each root it visits paths in ascending
 * order, compared part by part. For this reason the number of a model is the same in a complete
 * walk and in a walk that ended early because of a limit. The command prints one JSON object on
 * one line: {"models": [...], "incomplete": ..., "next": N}. "models" has the reports of report.h
 * in the order of the numbers, each with the first MODELS_FAULTS faults. "incomplete" is null if
 * the pages list all models. Otherwise it is the reason why there may be models that no page
 * lists. "next" is the N of the next page, and is absent on the last page. The exit status is 0,
 * or 1 if the answer cannot be written, or 2 for wrong arguments.
 *
 * A model directory has model.safetensors or its index, or a config.json together with a file of a
 * tokenizer ("tokeniz...") or a generation_config.json. A directory with an adapter_config.json is
 * an adapter's, which may have these files of its base; it is a model directory only if it has
 * weights of a model. If a directory without a config.json has exactly one *.gguf, that file is the
 * directory's model. If the directory has several *.gguf files, each file is listed as a model with
 * the path of the file. Directories inside a model directory are not searched, and private
 * directories (api/core/beneath.h) are not searched either. Below a root, links to directories are
 * not followed. A directory that can be reached by several paths is visited only once.
 *
 * The files in the directories may be malicious. For this reason each directory is read by a
 * separate process, whose memory and time are limited. The processes run one after the other.
 * If a process dies, the report of its directory has this as a fault, and the command
 * continues. The whole command is limited to 24 s and to an answer of MODELS_SIZE bytes. If
 * one of these limits ends an answer early, the answer still has at least one model, and the
 * next page has the remaining models. tested: tests/engine/test_models.c,
 * tests/scripts/models.sh */
#ifndef SEQD_RANK_MODELS_H
#define SEQD_RANK_MODELS_H

#include <stdint.h>
#include "api/core/rank.h"

/* largest number of models in one answer; 256 models of 4 KiB fill an answer */
#define MODELS_MAX RANK_MODELS_PAGE
/* largest number of models on all pages together; their paths have at most 80 MiB */
#define MODELS_FOUND RANK_MODELS
#define MODELS_SIZE  (1 << 20) /* largest size of an answer in bytes */
#define MODELS_DEPTH 8         /* levels of directories below a root */
/* largest number of directories that are opened, counted over all roots */
#define MODELS_DIRS    20000
#define MODELS_ENTRIES 400000 /* largest number of names that are read in these directories */
#define MODELS_FAULTS  3

struct models_limits {
    int64_t walk_ms, one_ms, all_ms; /* time limits in ms: for the search of directories, for
                                      * one model, and for the whole command */
    int64_t memory_size;             /* largest number of bytes of data of one process; 0 means
                                      * no limit */
};
/* The limits are 6 s for the walk, 6 s for one model, 24 s for the whole command, and 3 GiB of
 * memory. For comparison: a tokenizer.json of 49 MB took 2.7 s and 85 MB of memory on a busy
 * core. */
extern const struct models_limits models_limits;

int models_main(const char *const *roots, int n_roots);
/* Lists models as the command does, beginning with model number `first`. The parameter `l` has
 * the limits. Writes the answer to out. Returns the length of the answer, or -1 if it does not
 * fit. */
int64_t models_write(const char *const *roots, int n_roots, int64_t first,
                     const struct models_limits *l, char *out, int64_t size);

#endif
