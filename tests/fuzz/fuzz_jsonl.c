/* sources: kernels/cpu/pool.c worker/family/[a-z]*.c worker/program/[a-z]*.c worker/data/format.c worker/data/format_text.c worker/data/format_latents.c worker/data/latents.c worker/data/flow_fill.c worker/data/flow.c worker/plan/noise.c worker/plan/stage.c worker/data/order.c worker/data/pack.c worker/data/bestfit.c worker/data/permute.c worker/data/mixture.c worker/data/mask.c worker/data/data.c kernels/half.c worker/hf/safetensors.c api/core/mem.c worker/data/format_jsonl.c worker/data/format_shard.c worker/data/format_npy.c worker/data/format_megatron.c worker/data/ids.c worker/data/reader.c worker/data/encode.c worker/data/encode_text.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/hf/files.c worker/hf/tokenizer.c worker/data/meta.c worker/data/source.c api/core/file.c api/core/sha256.c api/core/record.c api/core/jread.c api/core/jwrite.c api/core/err.c api/core/faults.c api/core/job_text.c api/core/job.c api/core/job_infer.c api/core/job_train.c api/core/job_merge.c api/core/spec.c api/core/nearest.c api/core/device.c api/core/beneath.c api/core/progress.c api/core/remote.c api/core/room.c worker/data/jsonl_record.c worker/data/preference.c worker/hf/blocks.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads lines of JSONL. A line has a text, or a prompt and a completion, or ids with labels or a
 * mask, or, for preferences, a prompt and two answers. For a model with a tokenizer of its own,
 * lines have only ids. */
#include "api/core/job.h"
#include "api/core/model_shape.h"
#include "tests/fuzz/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    fuzz_put("f.jsonl", data + 1, size - 1);
    fuzz_spec.model.shape.tokenizer = data[0] & 2 ? TOKENIZER_OWN : TOKENIZER_AUTO;
    fuzz_spec.kind = JOB_TRAIN;
    fuzz_spec.objective.type = data[0] & 4 ? OBJECTIVE_DPO : OBJECTIVE_AUTO;
    fuzz_format(format_read_jsonl, "f.jsonl", size, -1,
                data[0] & 1 ? LOSS_ON_COMPLETION : LOSS_ON_AUTO);
    return 0;
}
