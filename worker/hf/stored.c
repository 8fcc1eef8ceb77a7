/* stored.c: finds a plain tensor or its MXFP4 blocks, and reads elements. */
#include "worker/hf/stored.h"

struct hf_stored hf_stored_find(const struct hf_weights *w, const struct param *p)
{
    struct st_file *f = NULL;
    struct hf_stored x = {.t = hf_lookup(w, p->name, &f)};
    x.f = f;
    if (!x.t) mxfp4_find(w, p, &x.mx);
    return x;
}

int hf_stored_read(const struct hf_stored *x, int64_t at, int64_t n, float *out, struct err *e)
{
    return x->t ? st_read_part(x->f, x->t, at, n, out, e) : mxfp4_read(&x->mx, at, n, out, e);
}

int hf_tied_differs(const struct st_file *f, const char *head, struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "%s: %s differs from the embedding, but config.json "
                   "has tie_word_embeddings",
                   st_path(f), head);
}
