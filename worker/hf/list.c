/* The tensors of a model as files name them, and in which order a file has their rows. */
#include <stdlib.h>
#include <string.h>
#include "worker/hf/hf.h"

static int by_param_name(const void *a, const void *b)
{
    return strcmp(((const struct param *)a)->name, ((const struct param *)b)->name);
}

struct param *hf_list(const struct model_shape *m, int *n, struct err *e)
{
    *n = param_tensors(m);
    struct param *p = *n > HF_MAX_PARAMS ? NULL : malloc((size_t)*n * sizeof *p);
    if (!p) {
        err_set(e, ERR_TOO_LARGE, "a model of %d tensors; the limit is %d", *n, HF_MAX_PARAMS);
        return NULL;
    }
    param_list(m, p, *n);
    return p;
}

struct param *hf_sorted(const struct model_shape *m, int *n, struct err *e)
{
    struct param *p = hf_list(m, n, e);
    if (p) qsort(p, (size_t)*n, sizeof *p, by_param_name);
    return p;
}

int64_t hf_run_size(const struct param *p)
{
    return p->head_major_parts ? p->head_major_dim * (p->count / p->rows) : p->count;
}

void hf_transpose(const void *in, void *out, int64_t rows, int64_t cols, int64_t unit)
{
    const char *from = in;
    char *to = out;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(to + (c * rows + r) * unit, from + (r * cols + c) * unit, (size_t)unit);
}

/* ours: [parts][heads] runs, the file's: [heads][parts]. */
int64_t hf_run_in_file(const struct param *p, int64_t i)
{
    if (!p->head_major_parts) return i;
    const int64_t heads = p->rows / p->head_major_dim / p->head_major_parts;
    return i % heads * p->head_major_parts + i / heads;
}

int64_t hf_run_here(const struct param *p, int64_t i)
{
    if (!p->head_major_parts) return i;
    const int64_t heads = p->rows / p->head_major_dim / p->head_major_parts;
    return i % p->head_major_parts * heads + i / p->head_major_parts;
}
