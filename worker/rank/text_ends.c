/* text_ends.c: reads the ids that end a text on rank 0, and sends them to the other ranks. */
#include "worker/rank/text_ends.h"

#include <stddef.h>
#include "api/core/job.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/files.h"
#include "worker/hf/hf.h"
#include "worker/rank/roots.h"

/* Removes the ids that the model does not have, because the model cannot generate them. Sends
 * a note about the first of the removed ids. */
static int drop_unknown(struct run *r, struct token_ends *ends, struct err *e)
{
    const int64_t V = r->spec->model.shape.vocab;
    struct err why = {0};
    int n = 0;
    for (int i = 0; i < ends->n; i++) {
        if (ends->id[i] < V)
            ends->id[n++] = ends->id[i];
        else if (why.code == ERR_NONE)
            hf_unknown_end(ends, i, V, &why);
    }
    ends->n = n;
    if (why.code == ERR_NONE) return 0;
    err_prefix(&why, "model.path");
    return link_send_note(r->link, "unknown_end", why.text, e);
}

/* Reads the ids that the model's files list. If they cannot be read from the keys of a GGUF
 * file, no id ends a text, and a note with the reason is sent. */
static int list_ends(struct run *r, const char *dir, struct token_ends *ends, struct err *e)
{
    struct err why = {0};
    if (hf_check_ends(dir, ends, &why) == 0) return drop_unknown(r, ends, e);
    *ends = (struct token_ends){0};
    if (!model_file_unmade(dir, &why)) return *e = why, -1;
    err_prefix(&why, "no id ends a text");
    return link_send_note(r->link, "no_ends", why.text, e);
}

/* Reads the ids that the directory lists. Adds the eos_token of its tokenizer, because the texts
 * on which the model was trained end with it. */
static int read_ends(struct run *r, const struct tokenizer *t, struct token_ends *ends,
                     struct err *e)
{
    char dir[RANK_PATH_SIZE];
    const struct job_spec *s = r->spec;
    const int32_t eos = t ? tokenizer_special(t)->eos : -1;
    /* A new model has no end ids, because no file says which id ends its texts. */
    if (spec_new_model(s)) return 0;
    if (roots_model(spec_text(s, s->model.path), r->roots, r->n_roots, dir, e) ||
        list_ends(r, dir, ends, e))
        return -1;
    for (int i = 0; i < ends->n; i++)
        if (ends->id[i] == eos) return 0;
    if (eos >= 0 && ends->n < TOKEN_ENDS) ends->id[ends->n++] = eos;
    return 0;
}

int text_ends_open(struct run *r, struct model *m, struct token_ends *ends, struct infer *in,
                   struct err *e)
{
    if (job_reads_bytes(r->spec)) return 0;
    if (run_first(r) && read_ends(r, in->tokenizer, ends, e)) return -1;
    in->ends = ends;
    if (!r->comm) return 0;
    return comm_broadcast(r->comm, PURPOSE_CONTROL, 0, ends, offsetof(struct token_ends, from),
                          m->bounce, e); /* rank 0 alone uses the rest */
}
