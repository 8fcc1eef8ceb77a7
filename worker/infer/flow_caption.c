/* flow_caption.c: reads the embedding of a caption from the file that a request names, and checks
 * its sizes and numbers. */
#include <math.h>
#include <stdio.h>
#include "worker/hf/safetensors.h"
#include "worker/infer/flow_request.h"

static int read_caption(struct flow_request *r, const struct model_shape *m, struct st_file *f,
                        const char *path, float *out, struct err *e)
{
    const struct st_tensor *y = format_latents_tensor(f, "y", 2, path, e);
    if (!y) return -1;
    const int64_t rows = r->s.x.text_len ? r->s.x.text_len : y->dims[0];
    if (y->dims[1] != m->caption_channels)
        return err_set(e, ERR_INVALID, "y of %s has %lld columns: the model reads %lld", path,
                       (long long)y->dims[1], (long long)m->caption_channels);
    if (rows > y->dims[0])
        return err_field(e, ERR_INVALID, "text_len", "text_len is %lld, y of %s has %lld rows",
                         (long long)rows, path, (long long)y->dims[0]);
    if (rows > m->text_len)
        return err_field(e, ERR_TOO_LARGE, "text_len",
                         "the caption has %lld rows, the model reads %lld at most", (long long)rows,
                         (long long)m->text_len);
    if (st_read_part(f, y, 0, rows * y->dims[1], out, e)) return -1;
    for (int64_t i = 0; i < rows * y->dims[1]; i++)
        if (!isfinite(out[i]))
            return err_set(e, ERR_INVALID, "%s: element %lld of y is no finite number", path,
                           (long long)i);
    r->s.x.text_len = rows;
    r->s.x.text_width = y->dims[1];
    return 0;
}

int flow_request_caption(struct flow_request *r, const struct model_shape *m, const char *root,
                         const char *manifest, float *out, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct st_file *f = NULL;
    int rc = format_latents_path(manifest, r->text, path, e);
    if (!rc) f = format_latents_file(root, path, e);
    rc = f ? read_caption(r, m, f, path, out, e) : -1;
    st_close(f);
    if (rc && !e->field[0]) snprintf(e->field, sizeof e->field, "text");
    return rc;
}
