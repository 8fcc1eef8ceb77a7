/* data_trace: from a global sample back to the files. */
#include "api/core/jwrite.h"
#include "worker/data/order.h"

static int write_fragment(struct jwrite *w, const struct data *d, const struct fragment *f,
                          struct err *e)
{
    struct data_origin at;
    const int64_t start = f->document ? (int64_t)data_documents(d)[f->document - 1] : 0;
    if (data_origin(d, f->document, &at, e) < 0) return -1;
    jwrite_object(w, NULL);
    jwrite_int(w, "source", at.source);
    jwrite_str(w, "file", data_file(d, at.file));
    jwrite_int(w, "record", (int64_t)at.record);
    jwrite_int(w, "byte_offset", (int64_t)at.offset);
    jwrite_int(w, "document", f->document);
    jwrite_int(w, "offset", f->token - start);
    jwrite_int(w, "length", f->length);
    jwrite_int(w, "pos", f->pos);
    jwrite_end(w);
    return 0;
}

int64_t data_trace(const struct data_order *o, int64_t n, int64_t max_fragments, char *out,
                   size_t size, struct err *e)
{
    struct sample s;
    struct jwrite w;
    const int64_t n_targets = data_targets(o, n, e);
    if (n_targets < 0) return -1;
    data_sample(o, n, &s);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "sample", n);
    jwrite_int(&w, "pass", s.pass);
    jwrite_int(&w, "tokens", s.n_tokens);
    jwrite_int(&w, "targets", n_targets);
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
