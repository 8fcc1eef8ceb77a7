#include "worker/rank/feed.h"

#include <string.h>
#include "worker/plan/stage.h"

int feed_open(struct feed *f, struct run *r, struct err *e)
{
    const struct job_spec *s = r->spec;
    *f = (struct feed){0};
    for (int i = -1; i < s->n_stages; i++) {
        f->options[i + 1] = (struct batch_options){.seq_len = stage_seq_len(s, i),
                                                   .seed = s->seed,
                                                   .document_mask = s->data.document_mask,
                                                   .reset_positions = s->data.reset_positions,
                                                   .causal = true,
                                                   .mutant = r->mutant};
        f->stage[i + 1] = (struct train_data){r->data, &f->options[i + 1]};
    }
    if (!s->eval.n_data) return 0;
    return err_field(e, ERR_UNSUPPORTED, "eval.data", "eval.data is not prepared yet");
}

void feed_close(struct feed *f)
{
    *f = (struct feed){0};
}

struct train_source feed_stage(struct feed *f, int stage)
{
    return train_source_data(&f->stage[stage + 1]);
}

struct train_source feed_eval(struct feed *f)
{
    return train_source_data(&f->eval);
}

int feed_samples(const struct run *r, int64_t samples[SPEC_STAGES + 1], struct err *e)
{
    (void)e;
    for (int i = -1; i < r->spec->n_stages; i++)
        samples[i + 1] = data_samples(r->data, stage_seq_len(r->spec, i));
    return 0;
}
