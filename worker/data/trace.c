/* data_trace: finds the files and records of a global sample. */
#include "api/core/jwrite.h"
#include "worker/data/latents.h"
#include "worker/data/order.h"

void data_write_origin(const struct data *d, const struct data_origin *from, struct jwrite *w)
{
    jwrite_str(w, "file", data_file(d, from->file));
    jwrite_int(w, "record", (int64_t)from->record);
}

static int write_fragment(struct jwrite *w, const struct data *d, const struct fragment *f,
                          struct err *e)
{
    struct data_origin at;
    const int64_t start = f->document ? (int64_t)data_documents(d)[f->document - 1] : 0;
    if (data_origin(d, f->document, &at, e) < 0) return -1;
    jwrite_object(w, NULL);
    jwrite_int(w, "source", at.source);
    data_write_origin(d, &at, w);
    jwrite_int(w, "byte_offset", (int64_t)at.offset);
    jwrite_int(w, "document", f->document);
    jwrite_int(w, "offset", f->token - start);
    jwrite_int(w, "length", f->length);
    jwrite_int(w, "pos", f->pos);
    jwrite_end(w);
    return 0;
}

static int write_tokens(struct jwrite *w, const struct data_order *o, int64_t n,
                        const struct sample *s, struct err *e)
{
    const int64_t n_targets = data_targets(o, n, e);
    if (n_targets < 0) return -1;
    jwrite_int(w, "tokens", s->n_tokens);
    jwrite_int(w, "targets", n_targets);
    return 0;
}

/* Writes the sizes of a sample of latents. The number of targets is not written, because it
 * depends on the random draws of a step. */
static int write_latents(struct jwrite *w, const struct data_order *o, int64_t n, struct err *e)
{
    struct latents_sample x;
    if (latents_sample(o, n, &x, e)) return -1;
    jwrite_array(w, "latents");
    jwrite_int(w, NULL, x.C);
    jwrite_int(w, NULL, x.T);
    jwrite_int(w, NULL, x.H);
    jwrite_int(w, NULL, x.W);
    jwrite_end(w);
    jwrite_int(w, "text_len", x.text_len);
    if (x.label >= 0) jwrite_int(w, "label", x.label);
    return 0;
}

int64_t data_trace(const struct data_order *o, int64_t n, int64_t max_fragments, char *out,
                   size_t size, struct err *e)
{
    struct sample s;
    struct jwrite w;
    data_sample(o, n, &s);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "sample", n);
    jwrite_int(&w, "pass", s.pass);
    if (data_latents(o->data) ? write_latents(&w, o, n, e) : write_tokens(&w, o, n, &s, e))
        return -1;
    jwrite_int(&w, "n_fragments", s.n_fragments);
    jwrite_array(&w, "fragments");
    for (int64_t k = 0; k < s.n_fragments && k < max_fragments; k++) {
        struct fragment f;
        data_fragment(o, &s, k, &f);
        if (write_fragment(&w, o->data, &f, e) < 0) return -1;
    }
    jwrite_end(&w);
    jwrite_end(&w);
    jwrite_finish(&w);
    return (int64_t)w.len;
}
