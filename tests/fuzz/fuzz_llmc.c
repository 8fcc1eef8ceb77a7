/* sources: kernels/cpu/pool.c worker/family/[a-z]*.c worker/program/[a-z]*.c worker/data/format.c worker/data/format_text.c worker/data/format_latents.c worker/data/latents.c worker/data/flow_fill.c worker/data/flow.c worker/plan/noise.c worker/plan/stage.c worker/data/order.c worker/data/pack.c worker/data/bestfit.c worker/data/permute.c worker/data/mixture.c worker/data/mask.c worker/data/data.c kernels/half.c worker/hf/safetensors.c api/core/mem.c worker/data/format_jsonl.c worker/data/format_shard.c worker/data/format_npy.c worker/data/format_megatron.c worker/data/ids.c worker/data/reader.c worker/data/encode.c worker/data/encode_text.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/hf/files.c worker/hf/tokenizer.c worker/data/meta.c worker/data/source.c api/core/file.c api/core/sha256.c api/core/record.c api/core/jread.c api/core/jwrite.c api/core/err.c api/core/faults.c api/core/job_text.c api/core/job.c api/core/job_infer.c api/core/job_train.c api/core/job_merge.c api/core/spec.c api/core/nearest.c api/core/device.c api/core/beneath.c api/core/progress.c api/core/remote.c api/core/room.c worker/data/jsonl_record.c worker/data/preference.c worker/hf/blocks.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads a shard of llm.c. The first byte of the input chooses the end id. It also chooses whether
 * the token count in the header is corrected, so that the fuzzer need not guess it. */
#include "tests/fuzz/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[1024 + 4096];
    if (size < 10) return 0;
    /* The fuzzer could not find all 1024 bytes of a valid header. Three of its numbers come from
     * the input, and the rest is 0. */
    memset(file, 0, sizeof file);
    memcpy(file, data + 1, size < 13 ? size - 1 : 12);
    size_t body = size > 13 ? size - 13 : 0;
    if (body > 4096) body = 4096;
    memcpy(file + 1024, data + 13, size > 13 ? body : 0);
    if (data[0] & 1) {
        const uint32_t magic = data[0] & 2 ? 20240520 : 20240801, version = data[0] & 2 ? 1 : 7;
        const uint32_t n = (uint32_t)(body / (data[0] & 2 ? 2 : 4));
        memcpy(file, &magic, 4);
        memcpy(file + 4, &version, 4);
        memcpy(file + 8, &n, 4);
    }
    fuzz_put("f.bin", file, data[0] & 4 ? size : 1024 + body);
    fuzz_format(format_read_llmc, "f.bin", 1024 + body, data[0] & 8 ? data[0] : -1, 0);
    fuzz_format(format_read_nanogpt, "f.bin", 1024 + body, data[0] & 8 ? data[0] : -1, 0);
    return 0;
}
