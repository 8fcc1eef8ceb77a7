/* ckpt_json.c: writes the record of a saved checkpoint. */
#include <string.h>
#include "api/core/checkpoint.h"
#include "api/core/record.h"
#include "worker/ckpt/ckpt.h"

double ckpt_mb_s(const struct ckpt_info *info)
{
    return info->save_ms ? (double)info->size / 1e3 / (double)info->save_ms : 0;
}

int64_t ckpt_json(const struct ckpt_info *info, char *out, size_t size)
{
    struct checkpoint_record c = {
        .step = info->step, .size = info->size, .save_ms = info->save_ms, .mb_s = ckpt_mb_s(info)};
    struct jwrite w;
    memcpy(c.path, info->path, sizeof info->path);
    memcpy(c.weights_sha256, info->weights_sha256, sizeof c.weights_sha256);
    jwrite_init(&w, out, size);
    record_write(&w, NULL, checkpoint_fields, &c);
    return jwrite_finish(&w);
}
