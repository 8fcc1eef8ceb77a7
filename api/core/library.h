/* library.h: finds and opens shared libraries that a node may lack: cuBLASLt, NCCL.
 *
 * They are searched for
 *   1. in the absolute folders that SEQD_LIBRARY_PATH names, separated by colons;
 *   2. in the folders of the loader (LD_LIBRARY_PATH, ldconfig);
 *   3. in /usr/local/cuda/lib64;
 *   4. in the folders of Python's wheels: nvidia/<package>/lib beneath the site-packages or
 *      dist-packages of each python3 in PATH.
 * A library is never closed, because its threads and kernels may be running. */
#ifndef SEQD_CORE_LIBRARY_H
#define SEQD_CORE_LIBRARY_H

#include "api/core/err.h"

#define LIBRARY_FOLDERS "SEQD_LIBRARY_PATH"

enum library_id { LIBRARY_CUBLASLT, LIBRARY_NCCL, LIBRARY_N };

struct library {
    void *handle;   /* for dlsym */
    int version;    /* 10000 major + 100 minor + patch; 0 if not known */
    char text[640]; /* name for logs: "NCCL 2.27.3, /usr/lib/x86_64-linux-gnu/libnccl.so.2" */
};

#ifdef __cplusplus
extern "C" {
#endif

const char *library_name(enum library_id id); /* "cuBLASLt" */
/* Opens a library. Fails with ERR_UNSUPPORTED; the error quotes the loader's message. */
int library_open(struct library *l, enum library_id id, struct err *e);
/* Opens the first of `files` that can be opened. The array ends with NULL. If no file can be
 * opened, returns NULL and fails as library_open does. */
void *library_find(const char *const *files, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
