/* model_tokenizer.c: opens the tokenizer and the chat template on rank 0, sends their bytes to
 * the other ranks, and compiles these bytes there. */
#include "worker/rank/model_tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/gguf/model_file.h"
#include "worker/rank/roots.h"

/* Returns true if the job needs text. Requests with bodies do not need text, because it may be that
 * all of them have ids. */
static bool needs_text(const struct job_spec *s)
{
    if (!job_has_bodies(s)) return true;
    for (int i = 0; i < SPEC_STOPS; i++)
        if (*spec_text(s, s->sampling.stop[i])) return true;
    return false;
}

static int read_file(struct model_tokenizer *t, const char *dir, struct err *e)
{
    struct model_text file;
    if (model_file_read(dir, "tokenizer.json", TOKENIZER_FILE_SIZE, &file, e) < 0) return -1;
    /* t takes ownership of file.text. This is not NULL, because the tokenizer was opened from
     * this text */
    t->file = file.text;
    t->size = (int64_t)file.size;
    return t->file ? 0 : err_set(e, ERR_NOT_FOUND, "%s is gone", file.path);
}

static int open_both(struct run *r, struct model_tokenizer *t, const char *dir, struct err *e)
{
    t->tokenizer = tokenizer_open(dir, &t->why);
    if (t->tokenizer) {
        chat_model_open(&t->chat, dir, &t->no_chat);
        return r->args->n_ranks > 1 ? read_file(t, dir, e) : 0;
    }
    strcpy(t->why.field, "model.path");
    if (!needs_text(r->spec)) return 0;
    if (e) *e = t->why;
    return -1;
}

int model_tokenizer_open(struct run *r, struct model_tokenizer *t, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    const struct job_spec *s = r->spec;
    if (!job_has_tokenizer(s)) return 0;
    if (roots_model(spec_text(s, s->model.path), r->roots, r->n_roots, dir, e)) return -1;
    struct gguf *const kept = model_file_keep(dir);
    const int rc = open_both(r, t, dir, e);
    model_file_leave(kept);
    return rc;
}

/* Sends one of the texts from rank 0 to all ranks. The parameter `data` is NULL if rank 0 has
 * no such text. */
static int share_text(struct run *r, struct text *t, void *bounce, struct err *e)
{
    int64_t size = t->data ? t->n : -1;
    if (comm_broadcast(r->comm, PURPOSE_CONTROL, 0, &size, sizeof size, bounce, e)) return -1;
    if (size < 0) return 0;
    if (!t->data) { /* this is not rank 0, which has the text */
        *t = (struct text){calloc((size_t)size + 1, 1), size, size + 1};
        if (!t->data)
            return err_set(e, ERR_IO, "out of memory for a chat template of %lld bytes",
                           (long long)size);
    }
    return size ? comm_broadcast(r->comm, PURPOSE_CONTROL, 0, t->data, size, bounce, e) : 0;
}

/* Sends the chat template to all ranks. If rank 0 cannot use the template, the other ranks get no
 * source. */
static int share_chat(struct run *r, struct chat_model *m, void *bounce, struct err *e)
{
    if (share_text(r, &m->source, bounce, e)) return -1;
    for (int i = 0; i < SIDE_TOKENS; i++)
        if (share_text(r, &m->special.text[i], bounce, e)) return -1;
    return m->t ? 0 : chat_model_compile(m, e);
}

int model_tokenizer_share(struct run *r, struct model_tokenizer *t, void *bounce, struct err *e)
{
    const struct job_spec *s = r->spec;
    if (!r->comm || !job_has_tokenizer(s)) return 0;
    if (comm_broadcast(r->comm, PURPOSE_CONTROL, 0, &t->size, sizeof t->size, bounce, e)) return -1;
    if (!t->size) return 0;
    if (!t->file && !(t->file = malloc((size_t)t->size)))
        return err_set(e, ERR_IO, "out of memory for a tokenizer of %lld bytes",
                       (long long)t->size);
    if (comm_broadcast(r->comm, PURPOSE_CONTROL, 0, t->file, t->size, bounce, e)) return -1;
    if (!t->tokenizer) t->tokenizer = tokenizer_open_text(t->file, (size_t)t->size, e);
    free(t->file);
    t->file = NULL;
    return t->tokenizer ? share_chat(r, &t->chat, bounce, e) : -1;
}

void model_tokenizer_fini(struct model_tokenizer *t)
{
    tokenizer_destroy(t->tokenizer);
    free(t->file);
    chat_model_close(&t->chat);
    *t = (struct model_tokenizer){0};
}
