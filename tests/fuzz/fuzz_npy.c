/* sources: kernels/cpu/pool.c worker/family/[a-z]*.c worker/program/[a-z]*.c worker/data/format.c worker/data/format_text.c worker/data/format_latents.c worker/data/latents.c worker/data/flow_fill.c worker/data/flow.c worker/plan/noise.c worker/plan/stage.c worker/data/order.c worker/data/pack.c worker/data/bestfit.c worker/data/permute.c worker/data/mixture.c worker/data/mask.c worker/data/data.c kernels/half.c worker/hf/safetensors.c api/core/mem.c worker/data/format_jsonl.c worker/data/format_shard.c worker/data/format_npy.c worker/data/format_megatron.c worker/data/ids.c worker/data/reader.c worker/data/encode.c worker/data/encode_text.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/hf/files.c worker/hf/tokenizer.c worker/data/meta.c worker/data/source.c api/core/file.c api/core/sha256.c api/core/record.c api/core/jread.c api/core/jwrite.c api/core/err.c api/core/faults.c api/core/job_text.c api/core/job.c api/core/job_infer.c api/core/job_train.c api/core/job_merge.c api/core/spec.c api/core/nearest.c api/core/device.c api/core/beneath.c api/core/progress.c api/core/remote.c api/core/room.c worker/data/jsonl_record.c worker/data/preference.c worker/hf/blocks.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads a NumPy array. Also reads its dictionary separately, so that the fuzzer need not find the
 * length of a header. */
#include "tests/fuzz/format.h"

#include "worker/data/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy a = {0};
    struct err e = {0};
    /* exactly as large as the text, so that a read past the end is detected */
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    int rc = format_npy_parse(text, size, &a, &e);
    free(text);
    assert(rc == 0 ? !e.code : e.code && e.text[0]);
    if (rc == 0) {
        assert(a.n >= 0 && a.n <= INT64_MAX / 8);
        assert(a.type.width == 1 || a.type.width == 2 || a.type.width == 4 || a.type.width == 8);
    }
    fuzz_put("f.npy", data, size);
    fuzz_format(format_read_npy, "f.npy", size, size % 2 ? 7 : -1, 0);
    return 0;
}
