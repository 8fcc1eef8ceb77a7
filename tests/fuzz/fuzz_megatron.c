/* sources: kernels/cpu/pool.c worker/family/[a-z]*.c worker/program/[a-z]*.c worker/data/format.c worker/data/format_text.c worker/data/format_latents.c worker/data/latents.c worker/data/flow_fill.c worker/data/flow.c worker/plan/noise.c worker/plan/stage.c worker/data/order.c worker/data/pack.c worker/data/bestfit.c worker/data/permute.c worker/data/mixture.c worker/data/mask.c worker/data/data.c kernels/half.c worker/hf/safetensors.c api/core/mem.c worker/data/format_jsonl.c worker/data/format_shard.c worker/data/format_npy.c worker/data/format_megatron.c worker/data/ids.c worker/data/reader.c worker/data/encode.c worker/data/encode_text.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/hf/files.c worker/hf/tokenizer.c worker/data/meta.c worker/data/source.c api/core/file.c api/core/sha256.c api/core/record.c api/core/jread.c api/core/jwrite.c api/core/err.c api/core/faults.c api/core/job_text.c api/core/job.c api/core/job_infer.c api/core/job_train.c api/core/job_merge.c api/core/spec.c api/core/nearest.c api/core/device.c api/core/beneath.c api/core/progress.c api/core/remote.c api/core/room.c worker/data/jsonl_record.c worker/data/preference.c worker/hf/blocks.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads a Megatron index, and tokens for it. In half of the inputs the counts and pointers are
 * corrected, with one sequence in each document, so that the fuzzer reaches the code after the
 * header. */
#include "tests/fuzz/format.h"

#include "worker/data/megatron.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void u64_put(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t idx[8192];
    if (size < 4 || size > 4096) return 0;
    const size_t cut = 1 + (size - 1) * data[0] / 255; /* the tokens begin there */
    const size_t n = cut - 1;
    memcpy(idx, data + 1, n);
    if (n >= MEGATRON_HEADER + 8) {
        memcpy(idx, "MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
        const uint64_t n_sequences = (n - MEGATRON_HEADER - 8) / 20;
        const size_t used = MEGATRON_HEADER + 20 * n_sequences + 8;
        u64_put(idx + 18, n_sequences);
        u64_put(idx + 26, n_sequences + 1);
        for (uint64_t i = 0; data[0] & 1 && i <= n_sequences; i++)
            u64_put(idx + used - 8 * (n_sequences + 1) + 8 * i, i);
        fuzz_put("f.idx", idx, data[0] & 2 ? n : used);
    } else {
        fuzz_put("f.idx", idx, n);
    }
    fuzz_put("f.bin", data + cut, size - cut);
    fuzz_format(format_read_megatron, "f.idx", size, -1, 0);
    return 0;
}
