/* same.c: compares worker/comm/nccl_api.h with NCCL's header. It is compiled if that header is
 * present, and is never run. */
#include <nccl.h>
#include <stdalign.h>
#include "worker/comm/nccl_api.h"

_Static_assert(NCCL_OK == (int)ncclSuccess && NCCL_IN_PROGRESS == (int)ncclInProgress, "results");
_Static_assert(NCCL_FLOATS == (int)ncclFloat32 && NCCL_SUM == (int)ncclSum, "sums");
_Static_assert(NCCL_BYTES == (int)ncclChar && NCCL_UNSET == NCCL_CONFIG_UNDEF_INT, "constants");
_Static_assert(sizeof(ncclUniqueId) == 128 && NCCL_VERSION_CODE >= NCCL_LEAST, "a header too old");

#define SAME(ours, theirs)                                                                         \
    _Static_assert(offsetof(struct nccl_config, ours) == offsetof(ncclConfig_t, theirs) &&         \
                       sizeof(((struct nccl_config *)0)->ours) ==                                  \
                           sizeof(((ncclConfig_t *)0)->theirs),                                    \
                   #theirs)
SAME(size, size);
SAME(magic, magic);
SAME(version, version);
SAME(blocking, blocking);
SAME(cga_size, cgaClusterSize);
SAME(min_ctas, minCTAs);
SAME(max_ctas, maxCTAs);
SAME(net_name, netName);
SAME(split_share, splitShare);
SAME(traffic_class, trafficClass);

/* If a prototype differs, it cannot initialise its slot (-Werror=incompatible-pointer-types). */
#define FILL(result, name, args) .name = name,
const struct nccl_api nccl_same = {NCCL_CALLS(FILL)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
                                       NCCL_LATER_CALLS(FILL)
#endif
};
