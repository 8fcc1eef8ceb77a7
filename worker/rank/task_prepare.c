#include "api/core/jwrite.h"
#include "worker/rank/run.h"

int task_prepare(struct run *r, struct err *e)
{
    struct data_stats s;
    struct data *d;
    char json[1024];
    struct jwrite w;
    if (data_prepare(r->spec, r->roots, r->args->n_roots, r->args->prepared_dir, &s, e)) return -1;
    d = data_open(r->args->prepared_dir, s.id, e); /* what was written can be read */
    if (!d) return -1;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "prepared_id", s.id);
    jwrite_int(&w, "n_tokens", s.n_tokens);
    jwrite_int(&w, "n_documents", s.n_documents);
    jwrite_int(&w, "n_bytes", s.n_bytes);
    jwrite_double(&w, "unigram_entropy", s.unigram_entropy);
    jwrite_int(&w, "samples_per_pass", data_samples(d, r->spec->data.seq_len));
    jwrite_end(&w);
    data_close(d);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}
