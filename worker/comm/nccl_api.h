/* nccl_api.h: the part of NCCL's interface that nccl.c uses. It is declared here so that seqd can
 * be built without NCCL's header and started without NCCL's library. The names are the names of
 * NCCL. tests/nccl/same.c compares these declarations with the real header. */
#ifndef SEQD_COMM_NCCL_API_H
#define SEQD_COMM_NCCL_API_H

#include <limits.h>
#include <stddef.h>

#ifndef NCCL_H_
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct nccl_config ncclConfig_t;
#endif

enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_BYTES = 0 /* ncclChar */, NCCL_FLOATS = 7 /* ncclFloat32 */, NCCL_SUM = 0 };

/* The config struct has the fields of version 2.18; a newer library treats fields of later
 * versions as unset. */
#define NCCL_LEAST 21800
#define NCCL_UNSET INT_MIN
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
    int cga_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
    int traffic_class; /* a field of later versions; 2.18 has padding here */
};
#define NCCL_MAGIC 0xcafebeefu

/* X(result, name, arguments) */
#define NCCL_CALLS(X)                                                                              \
    X(ncclResult_t, ncclGetVersion, (int *version))                                                \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                          \
    X(ncclResult_t, ncclCommInitRankConfig,                                                        \
      (ncclComm_t * comm, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t *config))           \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * state))                \
    X(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                           \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                            \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                              \
    X(ncclResult_t, ncclGroupStart, (void))                                                        \
    X(ncclResult_t, ncclGroupEnd, (void))                                                          \
    X(ncclResult_t, ncclSend,                                                                      \
      (const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,                 \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, ncclRecv,                                                                      \
      (void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))   \
    X(ncclResult_t, ncclCommSplit,                                                                 \
      (ncclComm_t comm, int color, int key, ncclComm_t *part, ncclConfig_t *config))               \
    X(ncclResult_t, ncclAllReduce,                                                                 \
      (const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, ncclReduceScatter,                                                             \
      (const void *from, void *to, size_t n_to, ncclDataType_t type, ncclRedOp_t op,               \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, ncclReduce,                                                                    \
      (const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,        \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, ncclAllGather,                                                                 \
      (const void *from, void *to, size_t n_from, ncclDataType_t type, ncclComm_t comm,            \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, ncclBroadcast,                                                                 \
      (const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t comm,       \
       cudaStream_t stream))                                                                       \
    X(const char *, ncclGetErrorString, (ncclResult_t result))                                     \
    X(const char *, ncclGetLastError, (ncclComm_t comm))

/* Calls of later versions. A call is NULL if the library lacks it. */
#define NCCL_LATER_CALLS(X)                                                                        \
    X(ncclResult_t, ncclAlltoAll, /* 2.28 */                                                       \
      (const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm,                 \
       cudaStream_t stream))

struct nccl_api {
#define NCCL_SLOT(result, name, args) result(*name) args;
    NCCL_CALLS(NCCL_SLOT)
    NCCL_LATER_CALLS(NCCL_SLOT)
#undef NCCL_SLOT
};

#endif
