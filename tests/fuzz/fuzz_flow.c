/* sources: api/core/job_paths.c api/core/profile.c api/core/rank.c worker/plan/[a-z]*.c worker/family/[a-z]*.c worker/program/[a-z]*.c worker/infer/flow_request.c worker/infer/requests.c worker/infer/grammar*.c worker/infer/vocabulary.c worker/infer/request_check.c worker/infer/request_steer.c worker/infer/request_chat.c worker/infer/request_tools.c worker/infer/calls.c worker/infer/request_text.c worker/infer/stop.c worker/jinja/[a-z]*.c worker/text/[a-z]*.c worker/data/flow.c api/core/spec.c api/core/nearest.c api/core/job.c api/core/device.c api/core/job_infer.c api/core/job_train.c api/core/job_merge.c api/core/job_text.c api/core/sha256.c api/core/jread.c api/core/err.c api/core/faults.c api/core/beneath.c api/core/file.c api/core/jwrite.c api/core/mem.c api/core/room.c worker/infer/neutral.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads any bytes as a line of a diffusion model's requests. A line must either be refused with a
 * sentence, or give a sample within the sizes for which the job was planned. Reading the line
 * again must give the same sample. Models have captions, classes, or neither. */
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/flow_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_good(const struct flow_request *r, const struct job_spec *spec)
{
    const struct latents_sample *x = &r->s.x;
    const struct model_shape *m = &spec->model.shape;
    const int64_t h = (x->H + 1) / 2, w = (x->W + 1) / 2; /* patches */
    assert(x->C == 4 && x->T >= 1 && x->T <= 5 && x->H >= 1 && x->W >= 1 && h * w <= 4 * 5);
    assert(x->height >= 1 && x->width >= 1 && x->num_frames >= 1 && x->fps > 0);
    assert(r->s.steps >= 1 && r->s.steps <= 10000 && r->s.guidance >= 0 && r->s.seed >= 0);
    assert(r->s.shift > 0 && r->s.n >= 0 && r->s.n < (int64_t)1 << 32);
    assert((r->text[0] != 0) == (m->caption_channels > 0) && r->id[0]);
    assert(r->s.label >= 0 && (r->s.label == 0 || r->s.label < m->type_vocab - 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct job_spec spec;
    static struct flow_request r, again;
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.kind = JOB_GENERATE;
    spec.model.shape = (struct model_shape){.family = FAMILY_STDIT3,
                                            .in_channels = 4,
                                            .patch_t = 1,
                                            .patch_h = 2,
                                            .patch_w = 2,
                                            .caption_channels = size % 3 == 0 ? 11 : 0,
                                            .type_vocab = size % 3 == 1 ? 4 : 0};
    spec.data.frames = 5;
    spec.data.height = 8;
    spec.data.width = 9;
    flow_request_of_line(&r, &spec, (const char *)data, (int64_t)size);
    flow_request_of_line(&again, &spec, (const char *)data, (int64_t)size);
    assert(r.refused.code == again.refused.code && r.s.seed == again.s.seed && r.s.n == again.s.n);
    if (r.refused.code == ERR_NONE)
        check_good(&r, &spec);
    else
        assert(r.refused.text[0]);
    return 0;
}
