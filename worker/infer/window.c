/* window.c: reads the tokens of a window. Fills a rank's rows of the batch with these tokens,
 * with their targets, and with the range of keys that each row may attend to. */
#include "worker/infer/window.h"

#include "api/core/job.h"

int64_t window_size(int64_t S)
{
    const struct window *w = NULL;
    return S * (int64_t)(sizeof *w->ids + sizeof *w->learn);
}

static int64_t start_of(const struct data *d, int64_t document)
{
    return document ? (int64_t)data_documents(d)[document - 1] : 0;
}

/* Returns the document that contains a token. It is the first document that ends after the
 * token. */
static int64_t document_at(const struct data *d, int64_t token)
{
    const uint64_t *ends = data_documents(d);
    int64_t lo = 0, hi = data_stats(d)->n_documents - 1;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (ends[mid] > (uint64_t)token)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* ---- whole documents ------------------------------------------------------------------------- */

/* Returns the position after the last token of the window that begins at token `first`. The
 * window ends with the last document that fits as a whole. */
static int64_t whole_end(const struct window *w, int64_t first)
{
    const uint64_t *ends = data_documents(w->d);
    const int64_t n = data_stats(w->d)->n_documents, most = first + w->S;
    int64_t document = document_at(w->d, first);
    if ((int64_t)ends[document] > most) return most;
    while (document + 1 < n && (int64_t)ends[document + 1] <= most) document++;
    return (int64_t)ends[document];
}

/* Finds the first token of a window of whole documents. If the window before this window was
 * read last, this window begins at the end of that window. Otherwise the search begins at the
 * first window. */
static int64_t whole_begin(const struct window *w, int64_t number)
{
    int64_t at = 0;
    if (number == w->number + 1) return w->first + w->n;
    for (int64_t i = 0; i < number; i++) at = whole_end(w, at);
    return at;
}

/* ---- all windows ----------------------------------------------------------------------------- */

static int64_t stride_of(const struct job_spec *spec, int64_t S)
{
    return spec->score.stride > 0 ? spec->score.stride : S;
}

int64_t window_overlap(const struct job_spec *spec, int64_t S)
{
    return S - stride_of(spec, S);
}

int64_t window_count(const struct data *d, const struct job_spec *spec, int64_t S)
{
    const struct window w = {.d = d, .S = S};
    const int64_t stride = stride_of(spec, S), tokens = data_stats(d)->n_tokens;
    int64_t n = 0;
    if (spec->data.packing != PACKING_BEST_FIT)
        return tokens > S ? 1 + (tokens - S + stride - 1) / stride : 1;
    for (int64_t at = 0; at < tokens; n++) at = whole_end(&w, at);
    return n;
}

void window_init(struct window *w, const struct data *d, const struct job_spec *spec, int64_t S,
                 void *mem)
{
    *w = (struct window){.d = d,
                         .S = S,
                         .stride = stride_of(spec, S),
                         .n_windows = window_count(d, spec, S),
                         .number = -1,
                         .whole = spec->data.packing == PACKING_BEST_FIT,
                         .document_mask = spec->data.document_mask != 0};
    w->ids = mem;
    w->learn = (uint8_t *)(w->ids + S);
}

int window_read(struct window *w, int64_t number, struct err *e)
{
    const int64_t first = w->whole ? whole_begin(w, number) : number * w->stride;
    const int64_t left = data_stats(w->d)->n_tokens - first;
    w->number = number;
    w->first = first;
    w->n = w->whole ? whole_end(w, first) - first : left < w->S ? left : w->S;
    w->fresh = number && !w->whole ? w->S - w->stride : 0;
    if (data_read(w->d, w->first, w->n, w->ids, e)) return -1;
    return data_read_mask(w->d, w->first, w->n, w->learn, e);
}

bool window_scores(const struct window *w, int64_t t, int64_t document_start)
{
    return t >= w->fresh && t > 0 && t < w->n && w->first + t > document_start && w->learn[t];
}

int64_t window_seen_from(const struct window *w, int64_t document_start)
{
    const int64_t start = document_start - w->first;
    return w->document_mask && start > 0 ? start : 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Fills the row of position i of the window. The document of this position begins at token `start`
 * and ends at token `end`. */
static void fill_row(const struct window *w, bool reset, int64_t i, int64_t start, int64_t end,
                     struct batch *b, int64_t row)
{
    const struct batch_rules rules = {true, w->document_mask, reset, w->n};
    const int64_t at = start - w->first, from = at > 0 ? at : 0;
    const bool scored = w->first + i + 1 < end && window_scores(w, i + 1, start);
    b->ids[row] = w->ids[i];
    b->targets[row] = scored ? w->ids[i + 1] : -1;
    batch_place(b, row, i, from, end - w->first, &rules);
}

/* Returns the number of targets of the whole window. The number is the same on every rank. */
static int64_t count_targets(const struct window *w)
{
    const uint64_t *ends = data_documents(w->d);
    int64_t document = document_at(w->d, w->first + w->fresh), n = 0;
    for (int64_t t = w->fresh; t < w->n; t++) {
        if ((uint64_t)(w->first + t) == ends[document]) document++;
        n += window_scores(w, t, start_of(w->d, document));
    }
    return n;
}

void window_fill(const struct window *w, const struct job_spec *spec, const struct shard *sh,
                 struct batch *b)
{
    const uint64_t *ends = data_documents(w->d);
    for (int s = 0; s < sh->n_segs; s++) {
        const int64_t row0 = s * sh->seg_len;
        int64_t document = sh->pos[s] < w->n ? document_at(w->d, w->first + sh->pos[s]) : 0;
        for (int64_t k = 0; k < sh->seg_len; k++) {
            const int64_t i = sh->pos[s] + k;
            if (i >= w->n) {
                batch_pad(b, row0 + k, token_pad(spec->model.shape.vocab));
                continue;
            }
            if ((uint64_t)(w->first + i) == ends[document]) document++;
            fill_row(w, spec->data.reset_positions, i, start_of(w->d, document),
                     (int64_t)ends[document], b, row0 + k);
        }
    }
    b->n_tokens = w->n;
    b->n_targets = count_targets(w);
}
