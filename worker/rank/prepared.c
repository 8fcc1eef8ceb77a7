/* prepared.c: calls data_prepare() with the model's directory and the prompt of an embed job.
 * If this node does not have the data of a job, makes the data and compares their id with the
 * id that the job states. */
#include "worker/rank/prepared.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/hf/embedding.h"
#include "worker/rank/roots.h"

static int note(struct run *r, const char *code, const char *text, struct err *e)
{
    char json[512];
    struct jwrite w;
    if (r->args->rank != r->args->first_local) return 0;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", code);
    jwrite_str(&w, "text", text);
    jwrite_str(&w, "prepared_id", r->args->prepared_id);
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    assert(n > 0);
    return link_send_event(r->link, EV_NOTE, 0, json, e);
}

int prepared_make(struct run *r, struct progress *progress, struct data_stats *out, struct err *e)
{
    char dir[RANK_PATH_SIZE] = "", *prompt = NULL;
    const struct rank_args *a = r->args;
    const struct job_spec *s = r->spec;
    const char *path = spec_text(s, s->model.path);
    const bool prompted = s->kind == JOB_EMBED && s->embed.prompts && path[0];
    if ((data_needs_tokenizer(s) || prompted) && roots_model(path, r->roots, r->n_roots, dir, e))
        return -1;
    if (prompted && hf_embedding_prompt(dir, spec_text(s, s->embed.prompt_name), &prompt, e))
        return -1;
    const struct data_model model = {dir, a->submitted_s, prompt};
    const int rc = data_prepare(s, &model, r->roots, r->n_roots, a->prepared_dir, progress, out, e);
    free(prompt);
    return rc;
}

int prepared_ensure(struct run *r, struct err *e)
{
    const struct rank_args *a = r->args;
    char path[FILE_PATH_SIZE];
    struct data_stats made;
    if (file_join(path, e, "%s/%s", a->prepared_dir, a->prepared_id)) return -1;
    if (file_exists(path)) return 0;
    if (note(r, "preparing", "this node makes the job's data from its sources", e)) return -1;
    if (prepared_make(r, NULL, &made, e))
        return err_prefix(e, "this node has no prepared data of the job yet");
    if (strcmp(made.id, a->prepared_id))
        return err_field(
            e, ERR_CONFLICT, "data.train",
            "the files on this node are not those the job was prepared from: they make "
            "data %s, the job has %s; make them equal on all nodes",
            made.id, a->prepared_id);
    return note(r, "prepared", "this node has the job's data", e);
}
