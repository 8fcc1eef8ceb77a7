/* sources: worker/data/format.c worker/data/format_jsonl.c worker/data/format_shard.c worker/data/format_npy.c worker/data/format_megatron.c worker/data/ids.c worker/data/reader.c worker/data/encode.c worker/data/meta.c worker/data/source.c api/core/file.c api/core/sha256.c api/core/jread.c api/core/jwrite.c api/core/err.c
 *
 * Lines of JSONL: text, prompt and completion, ids with labels or a mask. */
#include "tests/fuzz/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    fuzz_put("f.jsonl", data + 1, size - 1);
    fuzz_format(format_read_jsonl, "f.jsonl", size, -1,
                data[0] & 1 ? LOSS_ON_COMPLETION : LOSS_ON_ALL);
    return 0;
}
