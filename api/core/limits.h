/* limits.h: limits that are the same in every program. */
#ifndef SEQD_CORE_LIMITS_H
#define SEQD_CORE_LIMITS_H

#include <stdint.h>

/* Limits of a job's spec. */
#define SPEC_TEXT_SIZE   65536 /* bytes of all strings of a spec together, with their NULs */
#define SPEC_CONFIG_SIZE 8192  /* bytes of model.config as it is sent, with its NUL */
#define SPEC_SOURCES     32
#define SPEC_STAGES      8
#define SPEC_STOPS       4
#define SPEC_FREEZES     32  /* patterns of train.freeze */
#define STOP_SIZE        256 /* bytes of a stop string */
#define SPEC_LABELS      16
#define SPEC_AFTER       16  /* jobs of after and after_any */
#define SPEC_LABEL_KEY   63  /* bytes */
#define SPEC_LABEL_VALUE 255 /* bytes */

#define NODE_MAX            4096 /* largest number of nodes that a seqd knows at one time */
#define JOB_MAX_RANKS       64   /* largest number of ranks of one job, on all its nodes together */
#define JOB_MAX_BATCH       64   /* largest infer.batch, and largest serve.max_requests */
#define JOB_AUTO_BATCH      16   /* most that a plan chooses: rows of kernels/cpu/gemm_few.inc */
#define CACHE_PAGE          64   /* positions of a page of cached keys: a tile of attention */
#define JOB_MAX_SEQ         ((int64_t)1 << 26)
#define JOB_MAX_HEAD        256 /* largest head size: columns of an attention tile */
#define JOB_MAX_LINEAR_HEAD 512 /* largest head size of keys and of values in linear attention */
#define BLOB_SIZE                                                                                  \
    1024 /* largest number of bytes that one rank may publish for the
                                  * rendezvous */

#endif
