/* sources: api/wire.c api/wire_pack.c api/wire_spec.c api/wire_gpu.c api/core/gpu.c api/address.c build/release/gen/api/cluster.pb-c.c api/core/err.c api/core/mem.c api/core/job.c api/core/device.c api/core/job_train.c api/core/job_merge.c api/core/job_infer.c api/core/spec.c api/core/nearest.c -Ibuild/release/gen -lprotobuf-c api/core/job_text.c api/core/profile.c api/core/jread.c api/core/jwrite.c api/core/rank.c
 *
 * Reads messages between seqd and seqw. Run `make` first, because it generates code that this
 * program needs. It must be possible to pack an accepted message, and unpacking the packed bytes
 * must give the same message. */
#include "api/wire.h"

#include <string.h>
#include "api/core/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a, b;
    struct msg m, again;
    struct err e = {0};
    size_t n = 0;
    arena_init(&a, 16 << 20);
    arena_init(&b, 16 << 20);
    if (wire_unpack(data, size, &a, &m, &e) == 0) {
        void *out = wire_pack(&m, &b, &n);
        assert(out);
        int rc = wire_unpack(out, n, &b, &again, &e);
        assert(rc == 0 && again.type == m.type && again.job == m.job && again.epoch == m.epoch);
        assert(again.size == m.size && (!m.size || !memcmp(again.data, m.data, m.size)));
    } else {
        assert(e.code != ERR_NONE && e.text[0]);
    }
    arena_fini(&a);
    arena_fini(&b);
    return 0;
}
