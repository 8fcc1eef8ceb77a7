/* task_prepare.c: runs a preparation: makes the data, opens every order that the job will
 * open, and reports counts, notes and the traffic of each form of ring attention. */
#include <stdio.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jwrite.h"
#include "worker/family/family.h"
#include "worker/hf/files.h"
#include "worker/hf/tokenizer.h"
#include "worker/infer/window.h"
#include "worker/plan/form.h"
#include "worker/rank/prepare_latents.h"
#include "worker/rank/prepared.h"
#include "worker/rank/roots.h"
#include "worker/rank/run.h"

/* Counts the samples that the job will read, for a score job, these are windows. */
static int64_t count_samples(const struct run *r, const struct data *d, const struct data_order *o)
{
    const struct job_spec *s = r->spec;
    return s->kind == JOB_SCORE ? window_count(d, s, s->data.seq_len) : data_order_samples(o);
}

/* Writes how the documents fill n samples of one length. The parameter `shared` is the number
 * of tokens that each sample shares with the sample before it. */
static void write_order(struct jwrite *w, const struct order_options *o,
                        const struct order_stats *s, const struct order_learnt *learnt, int64_t n,
                        int64_t shared)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "set", o->set == SET_EVAL ? "eval" : "train");
    jwrite_int(w, "seq_len", o->seq_len);
    jwrite_int(w, "samples", n);
    jwrite_int(w, "fragments", s->n_fragments);
    jwrite_int(w, "tokens", s->n_tokens);
    jwrite_int(w, "learnt", learnt->tokens);
    jwrite_int(w, "padding", n * o->seq_len - s->n_tokens - (n - 1) * shared);
    jwrite_int(w, "documents", s->n_documents);
    jwrite_int(w, "dropped_documents", s->dropped_documents);
    jwrite_int(w, "dropped_tokens", s->dropped_tokens);
    jwrite_int(w, "truncated_documents", s->truncated_documents);
    jwrite_int(w, "truncated_tokens", s->truncated_tokens);
    jwrite_int(w, "split_documents", s->split_documents);
    jwrite_end(w);
}

/* Sends a note if the data contain padding as tokens. If the end id is also the pad id, only
 * repetitions of this id are counted as padding. If the data are large, only the beginning of
 * the data is read, because padding usually is in every record. */
static int note_padding(struct run *r, const struct data *d, struct err *e)
{
    enum { MOST = 1 << 26 };
    const struct job_spec *s = r->spec;
    char dir[RANK_PATH_SIZE], text[512];
    struct token_ends ends = {0};
    bool repeats = false;
    if (!spec_text(s, s->model.path)[0]) return 0;
    if (roots_model(spec_text(s, s->model.path), r->roots, r->n_roots, dir, e)) return -1;
    const int32_t pad = hf_read_pad(dir);
    if (pad < 0 || hf_read_ends(dir, &ends, e) < 0) return pad < 0 ? 0 : -1;
    for (int i = 0; i < ends.n; i++) repeats = repeats || ends.id[i] == pad;
    const int64_t n = data_count_id(d, pad, repeats, MOST, e);
    if (n <= 0) return (int)n;
    snprintf(text, sizeof text,
             "%lld tokens are %d, pad_token_id of the model, and are read as tokens of the text: "
             "transformers gives padding no position where positions begin after it (RoBERTa) and "
             "trains no row of the embedding for it; leave padding out of the records, or give "
             "\"attention_mask\" beside \"input_ids\"",
             (long long)n, (int)pad);
    return link_send_note(r->link, "padding", text, e);
}

/* Sends a note if there are documents from which the model does not learn, or from which it
 * learns only in parts. The note is about the training set alone, so that it is sent once. */
static int note(struct run *r, const struct data *d, const struct data_order *o,
                const struct order_learnt *learnt, struct err *e)
{
    const struct order_stats *s = data_order_stats(o);
    const int64_t skipped = data_stats(d)->n_skipped;
    char text[512], cut[96] = "";
    if (!s->dropped_documents && !s->truncated_documents && !s->split_documents && !skipped)
        return 0;
    if (learnt->cut_off)
        snprintf(cut, sizeof cut, "; %lld completions were cut off whole",
                 (long long)learnt->cut_off);
    snprintf(text, sizeof text,
             "of %lld documents %lld were dropped (%lld tokens), %lld truncated (%lld tokens cut "
             "off) and %lld split: they are longer than data.seq_len %lld; %lld empty records were "
             "skipped%s",
             (long long)data_stats(d)->n_documents, (long long)s->dropped_documents,
             (long long)s->dropped_tokens, (long long)s->truncated_documents,
             (long long)s->truncated_tokens, (long long)s->split_documents,
             (long long)r->spec->data.seq_len, (long long)skipped, cut);
    return link_send_note(r->link, "data", text, e);
}

/* Sends a note if there are pairs whose answers are equal, or have different prompts. */
static int note_pairs(struct run *r, const struct data *d, struct err *e)
{
    struct data_alike of;
    char text[512], equal[128] = "";
    if (!job_learns_pairs(r->spec)) return 0;
    if (data_alike(d, &of, e)) return -1;
    if (!of.equal && !of.apart) return 0;
    if (of.equal)
        snprintf(equal, sizeof equal, "in %lld of %lld pairs both answers are equal%s",
                 (long long)of.equal, (long long)of.pairs, of.apart ? "; " : "");
    snprintf(text, sizeof text, "%s", equal);
    if (of.apart)
        snprintf(text, sizeof text,
                 "%sin %lld of %lld pairs the answers have different prompts: without \"prompt\" "
                 "it is the messages with which \"chosen\" and \"rejected\" both begin",
                 equal, (long long)of.apart, (long long)of.pairs);
    return link_send_note(r->link, "data", text, e);
}

/* Sends a note about the records of an embed job that get no vector. */
static int note_skipped(struct run *r, const struct data *d, struct err *e)
{
    const int64_t skipped = data_stats(d)->n_skipped;
    char text[256];
    if (!skipped) return 0;
    snprintf(text, sizeof text,
             "%lld empty records were skipped: they have no vector and no line in "
             "embeddings.ids.jsonl",
             (long long)skipped);
    return link_send_note(r->link, "data", text, e);
}

static void write_traffic(struct jwrite *w, const char *name, const struct form_traffic *t)
{
    jwrite_object(w, name);
    jwrite_int(w, "messages", t->messages);
    jwrite_int(w, "bytes", t->bytes);
    jwrite_end(w);
}

/* Writes the traffic that each form of ring attention would cause, so that seqd can choose a
 * form. */
static int write_forms(struct run *r, const struct data_order *o, struct jwrite *w, struct err *e)
{
    const struct job_spec *s = r->spec;
    struct form_seen seen = {0};
    struct reach_map map;
    struct shard sh;
    if (plan_make(s, 0, &r->plan, e)) return -1;
    if (r->plan.S != s->data.seq_len) return 0; /* verify.max_tokens shortens the samples */
    if (plan_shard(&r->plan, r->plan.S, 0, &sh, e)) return -1;
    const int64_t some = FORM_SAMPLES * 16 / r->plan.sp, all = data_order_samples(o);
    const int64_t most = some < FORM_SAMPLES ? some : FORM_SAMPLES, n = all < most ? all : most;
    for (int64_t i = 0; i < n; i++) {
        data_reach(o, &sh, i, &map);
        form_count(s, &r->plan, &map, &seen);
    }
    jwrite_object(w, "forms");
    jwrite_int(w, "samples", seen.n_samples);
    write_traffic(w, "blockwise", &seen.blockwise);
    write_traffic(w, "all_gather", &seen.all_gather);
    jwrite_end(w);
    return 0;
}

/* Writes the traffic of the forms for the order with which the job begins. */
static int count_forms(struct run *r, const struct data *d, struct jwrite *w, struct err *e)
{
    const struct order_options oo = data_order_options(r->spec, SET_TRAIN, 0);
    if (!form_waits(r->spec)) return 0;
    struct data_order *o = data_order_open(d, &oo, e);
    if (!o) return -1;
    const int rc = write_forms(r, o, w, e);
    data_order_close(o);
    return rc;
}

/* Refuses masked data in which no token is a target. The fix must be one that the job's kind
 * takes: a score has no data.loss_on, and "all" there leaves labels and loss_mask as they are. */
static int all_masked(const struct job_spec *s, const char *field, const char *verb, struct err *e)
{
    const bool assistant = s->data.loss_on == LOSS_ON_AUTO || s->data.loss_on == LOSS_ON_ASSISTANT;
    return err_field(e, ERR_INVALID, field,
                     "no token of %s is %s: labels are -100, loss_mask is 0, or no turn of a "
                     "conversation has the role \"assistant\", wherever a token has others before "
                     "it: correct them, or %s",
                     field, verb,
                     s->kind == JOB_SCORE ? "give whole texts, or input_ids without these lists, "
                                            "of which every token is scored"
                     : assistant ? "set data.loss_on to \"all\", which learns all turns of "
                                   "conversations"
                                 : "give records with tokens to learn");
}

/* Refuses data in which no token is a target, because such a training would not change the
 * weights. */
static int check_learnt(const struct run *r, const struct order_options *o, const struct data *d,
                        const struct order_learnt *learnt, struct err *e)
{
    const bool score = r->spec->kind == JOB_SCORE;
    const char *field = o->set == SET_EVAL ? "eval.data" : score ? "input" : "data.train";
    const char *verb = score ? "scored" : "learnt";
    if (learnt->tokens) return 0;
    if (learnt->cut_off)
        return err_field(e, ERR_INVALID, field,
                         "no token of %s is %s: %lld completions were cut off by data.overlong "
                         "\"truncate\" at %lld tokens: raise data.seq_len",
                         field, verb, (long long)learnt->cut_off, (long long)o->seq_len);
    if (data_masked(d)) return all_masked(r->spec, field, verb, e);
    return err_field(e, ERR_INVALID, field,
                     "no token of %s is %s: every document has one token, and a document's first "
                     "token has none before it: give longer documents",
                     field, verb);
}

/* Opens one of the orders that the job will open. If the order is refused, the job is refused
 * here, before its ranks start. *per_pass gets the number of samples of the first order. */
static int try_order(struct run *r, const struct data *d, int set, int64_t seq_len,
                     struct jwrite *w, int64_t *per_pass, struct err *e)
{
    struct order_options oo = data_order_options(r->spec, set, seq_len);
    struct data_order *o = data_order_open(d, &oo, e);
    if (!o) return -1;
    struct order_learnt learnt;
    const bool first = !*per_pass;
    const int64_t n = count_samples(r, d, o);
    if (first) *per_pass = n;
    int rc = data_order_learnt(o, &learnt, e);
    if (!rc) rc = check_learnt(r, &oo, d, &learnt, e);
    const int64_t shared = r->spec->kind == JOB_SCORE ? window_overlap(r->spec, oo.seq_len) : 0;
    if (!rc) write_order(w, &oo, data_order_stats(o), &learnt, n, shared);
    if (!rc && first) rc = note(r, d, o, &learnt, e);
    data_order_close(o);
    return rc;
}

static int try_orders(struct run *r, const struct data *d, struct jwrite *w, int64_t *per_pass,
                      struct err *e)
{
    const struct job_spec *s = r->spec;
    if (s->kind == JOB_EMBED) { /* an embed job reads documents instead of samples, and for
                                 * that reason has no order */
        *per_pass = data_stats(d)->n_documents;
        return note_skipped(r, d, e);
    }
    if (try_order(r, d, SET_TRAIN, 0, w, per_pass, e)) return -1;
    for (int i = 0; s->kind == JOB_TRAIN && i < s->n_stages; i++)
        if (s->stages[i].seq_len &&
            try_order(r, d, SET_TRAIN, s->stages[i].seq_len, w, per_pass, e))
            return err_prefix(e, "stages.%d", i);
    if (data_stats(d)->eval_documents) return try_order(r, d, SET_EVAL, 0, w, per_pass, e);
    return 0;
}

static int send(struct run *r, const struct data *d, double made_mb_s, struct err *e)
{
    const struct data_stats *s = data_stats(d);
    char json[RANK_RESULT_SIZE];
    struct jwrite w;
    int64_t per_pass = 0;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "prepared_id", s->id);
    jwrite_int(&w, "n_tokens", s->n_tokens);
    jwrite_int(&w, "n_documents", s->n_documents);
    jwrite_int(&w, "n_bytes", s->n_bytes);
    jwrite_int(&w, "eval_tokens", s->eval_tokens);
    jwrite_int(&w, "eval_documents", s->eval_documents);
    jwrite_int(&w, "masked_tokens", s->n_masked);
    jwrite_int(&w, "skipped_records", s->n_skipped);
    jwrite_double(&w, "unigram_entropy", s->unigram_entropy);
    if (made_mb_s > 0) jwrite_double(&w, "mb_s", made_mb_s);
    jwrite_array(&w, "orders");
    if (try_orders(r, d, &w, &per_pass, e)) return -1;
    jwrite_end(&w);
    jwrite_int(&w, "samples_per_pass", per_pass);
    if (count_forms(r, d, &w, e)) return -1;
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

int task_prepare(struct run *r, struct err *e)
{
    struct data_stats s;
    if (prepared_make(r, &r->progress, &s, e)) return -1;
    struct data *d = data_open(r->args->prepared_dir, s.id, DATA_TRUST, e);
    /* The data are opened before any rank starts. If they cannot be read, the job fails here. */
    if (!d) return -1;
    const bool latents = family_diffusion(&r->spec->model.shape);
    int rc = latents ? 0 : note_padding(r, d, e) || note_pairs(r, d, e) ? -1 : 0;
    if (!rc) rc = latents ? prepare_latents(r, d, e) : send(r, d, s.made_mb_s, e);
    data_close(d);
    return rc;
}
