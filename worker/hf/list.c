/* Lists the tensors of a model by their names in files. Converts the order of rows in files to
 * that of the flat layout, and back. */
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

_Static_assert(FAMILY_TENSORS <= ST_TENSORS, "a model is saved in one file");

static int by_param_name(const void *a, const void *b)
{
    return strcmp(((const struct param *)a)->name, ((const struct param *)b)->name);
}

static int by_offset(const void *a, const void *b)
{
    const struct param *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

struct param *hf_list(const struct model_shape *m, int *n, struct err *e)
{
    *n = param_tensors(m);
    struct param *p = *n > FAMILY_TENSORS ? NULL : malloc((size_t)*n * sizeof *p);
    if (!p) {
        err_set(e, ERR_TOO_LARGE, "a model of %d tensors; the limit is %d", *n, FAMILY_TENSORS);
        return NULL;
    }
    param_list(m, p, *n);
    if (m->freeze.n_kinds) qsort(p, (size_t)*n, sizeof *p, by_offset);
    return p;
}

int hf_trained(struct param *list, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (list[i].trained) list[kept++] = list[i];
    return kept;
}

int hf_of_base(struct param *list, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (!list[i].adapter) list[kept++] = list[i];
    return kept;
}

int hf_of_adapter(struct param *list, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (list[i].adapter || list[i].saved) list[kept++] = list[i];
    return kept;
}

struct param *hf_sorted(const struct model_shape *m, int *n, struct err *e)
{
    struct param *p = hf_list(m, n, e);
    if (p) qsort(p, (size_t)*n, sizeof *p, by_param_name);
    return p;
}

const struct param *hf_find_param(const struct param *sorted, int n, const char *name)
{
    struct param key;
    const size_t len = strlen(name);
    if (len >= sizeof key.name) return NULL;
    memcpy(key.name, name, len + 1);
    return bsearch(&key, sorted, (size_t)n, sizeof *sorted, by_param_name);
}

int64_t hf_run_size(const struct param *p)
{
    return p->head_major_parts ? p->head_major_dim * (p->count / p->rows) : p->count;
}

int64_t hf_block_size(const struct param *p)
{
    return param_block(true, p->stack, p->count);
}

bool hf_by_blocks(const struct param *p)
{
    return param_block(p->transposed, p->stack, p->count) > 0;
}

/* ---- rows that files group by head ----------------------------------------------------------- */

static int64_t runs_of(const struct param *p, int part)
{
    return p->head_major_runs[part] ? p->head_major_runs[part] : 1;
}

/* Returns the number of runs of a head that precede `part`. If `part` is head_major_parts, returns
 * the number of all runs of the head. */
static int64_t runs_before(const struct param *p, int part)
{
    int64_t n = 0;
    for (int i = 0; i < part; i++) n += runs_of(p, i);
    return n;
}

/* Returns the index that run i of the flat layout has in the file. The order of the flat layout is
 * [parts][heads][runs of the part]. The order of the file is [heads][parts][runs of the part]. */
static int64_t run_in_file(const struct param *p, int64_t heads, int64_t i)
{
    int part = 0;
    while (i >= heads * runs_before(p, part + 1)) part++;
    const int64_t n = runs_of(p, part), before = runs_before(p, part), at = i - heads * before;
    return at / n * runs_before(p, p->head_major_parts) + before + at % n;
}

static int64_t run_here(const struct param *p, int64_t heads, int64_t i)
{
    const int64_t all = runs_before(p, p->head_major_parts), at = i % all;
    int part = 0;
    while (at >= runs_before(p, part + 1)) part++;
    const int64_t before = runs_before(p, part);
    return heads * before + i / all * runs_of(p, part) + at - before;
}

/* Returns the number of heads in `rows` rows. */
static int64_t heads_of(const struct param *p, int64_t rows)
{
    return rows / p->head_major_dim / runs_before(p, p->head_major_parts);
}

int64_t hf_run_in_file(const struct param *p, int64_t i)
{
    return p->head_major_parts ? run_in_file(p, heads_of(p, p->rows), i) : i;
}

int64_t hf_run_here(const struct param *p, int64_t i)
{
    return p->head_major_parts ? run_here(p, heads_of(p, p->rows), i) : i;
}

/* Returns the index that row r of a block of the flat layout has in the file. */
static int64_t row_in_file(const struct param *p, int64_t rows, int64_t r)
{
    const int64_t D = p->head_major_dim;
    if (!p->head_major_parts) return r;
    return run_in_file(p, heads_of(p, rows), r / D) * D + r % D;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static inline void move(char *to, const char *from, int64_t unit)
{
    if (unit == 2)
        memcpy(to, from, 2);
    else
        memcpy(to, from, 4);
}

/* Number of rows and of columns of a tile. A tile is small enough for the cache. */
enum { TILE = 32 };

int64_t hf_block_rows(const struct param *p)
{
    return p->rows / (p->stack ? p->stack : 1);
}

/* Moves a part of a block: the rows [first, last) of the flat layout. If the parameter `here`
 * is true, rows are moved from the file's order to the flat layout's order. Otherwise they are
 * moved from the flat layout's order to the file's order. */
static void block_move(const struct param *p, char *to, const char *from, int64_t unit,
                       bool transposed, bool here, int64_t first, int64_t last)
{
    const int64_t rows = hf_block_rows(p), C = hf_block_size(p) / rows;
    assert(unit == 2 || unit == 4);
    for (int64_t r0 = first; r0 < last; r0 += TILE)
        for (int64_t c0 = 0; c0 < C; c0 += TILE)
            for (int64_t r = r0; r < last && r < r0 + TILE; r++) {
                const int64_t at = row_in_file(p, rows, r);
                for (int64_t c = c0; c < C && c < c0 + TILE; c++) {
                    const int64_t ours = r * C + c, file = transposed ? c * rows + at : at * C + c;
                    move(to + (here ? ours : file) * unit, from + (here ? file : ours) * unit,
                         unit);
                }
            }
}

void hf_block_here(const struct param *p, const void *file, void *ours, int64_t unit,
                   bool transposed)
{
    block_move(p, ours, file, unit, transposed, true, 0, hf_block_rows(p));
}

void hf_block_rows_here(const struct param *p, const float *file, float *ours, bool transposed,
                        int64_t first, int64_t last)
{
    block_move(p, (char *)ours, (const char *)file, sizeof *ours, transposed, true, first, last);
}

void hf_block_in_file(const struct param *p, const void *ours, void *file, int64_t unit)
{
    block_move(p, file, ours, unit, p->transposed, false, 0, hf_block_rows(p));
}
