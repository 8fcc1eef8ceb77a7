/* library.h: finds and opens shared libraries that a node may lack: cuBLASLt, NCCL.
 *
 * They are looked for
 *   1. in the folders that SEQD_LIBRARY_PATH names, absolute, with colons between;
 *   2. in the folders of the loader (LD_LIBRARY_PATH, ldconfig);
 *   3. in /usr/local/cuda/lib64;
 *   4. in the folders of Python's wheels: nvidia/<package>/lib beneath the site-packages or
 *      dist-packages of each python3 in PATH.
 * A library stays open: its threads and kernels may be running. */
#ifndef SEQD_CORE_LIBRARY_H
#define SEQD_CORE_LIBRARY_H

#include "api/core/err.h"

#define LIBRARY_FOLDERS "SEQD_LIBRARY_PATH"

enum library_id { LIBRARY_CUBLASLT, LIBRARY_NCCL, LIBRARY_N };

struct library {
    void *handle;   /* for dlsym */
    int version;    /* 10000 major + 100 minor + patch; 0: not known */
    char text[640]; /* for logs: "NCCL 2.27.3, /usr/lib/x86_64-linux-gnu/libnccl.so.2" */
};

#ifdef __cplusplus
extern "C" {
#endif

const char *library_name(enum library_id id); /* "cuBLASLt" */
/* Opens a library. fails: ERR_UNSUPPORTED, with the loader's words. */
int library_open(struct library *l, enum library_id id, struct err *e);
/* Opens the first of these files that opens; the list ends with NULL. Returns NULL if none opens.
 * fails: as library_open. */
void *library_find(const char *const *files, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
