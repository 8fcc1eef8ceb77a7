/* sources: kernels/half.c worker/hf/safetensors.c api/core/file.c api/core/sha256.c api/core/jread.c api/core/mem.c api/core/err.c api/core/faults.c api/core/beneath.c worker/hf/blocks.c worker/gguf/gguf_names.c worker/gguf/gguf.c
 *
 * Reads any bytes as a weights file. Accepted tensors must be inside the file and sorted, and must
 * cover the file without a gap. All their elements must be readable. In half of the inputs the
 * length of the header is corrected, so that the fuzzer need not guess it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "worker/hf/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct st_file *f, size_t file_size)
{
    struct err e;
    int64_t total = 0;
    for (int i = 0; i < st_count(f); i++) {
        const struct st_tensor *t = st_at(f, i);
        assert(i == 0 || strcmp(st_at(f, i - 1)->name, t->name) < 0);
        assert(st_find(f, t->name) == t);
        assert(t->offset >= 8 && t->size >= 0 && t->offset + t->size <= (int64_t)file_size);
        assert(t->size == t->count * st_dtype_size(t->dtype));
        total += t->size;
        volatile uint8_t sum = 0;
        for (int64_t k = 0; k < t->size; k++) sum += ((const uint8_t *)st_data(f, t))[k];
        float *out = malloc((size_t)t->count * sizeof *out + 1);
        int rc = st_read_f32(f, t, out, &e);
        assert((rc == 0) == (t->dtype == ST_F32 || t->dtype == ST_F16 || t->dtype == ST_BF16));
        free(out);
    }
    assert(total <= (int64_t)file_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    struct err e = {0};
    uint8_t head[8] = {0};
    if (size < 8) return 0;
    if (fd < 0) fd = memfd_create("fuzz", 0);
    memcpy(head, data, 8);
    if (data[0] & 1) { /* the header ends at the last '}' */
        size_t n = size;
        while (n > 8 && data[n - 1] != '}') n--;
        uint64_t header = n - 8;
        memcpy(head, &header, 8);
    }
    if (ftruncate(fd, 0) < 0 || pwrite(fd, head, 8, 0) != 8) abort();
    if (pwrite(fd, data + 8, size - 8, 8) != (ssize_t)(size - 8)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct st_file *f = st_open(path, &e);
    assert(f || (e.code && e.text[0]));
    if (f) check(f, size);
    st_close(f);
    return 0;
}
