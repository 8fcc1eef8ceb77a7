/* trace.c: reads the arguments, whose words are those of the job spec, opens the order that
 * they describe, and prints each sample's fragments. */
#include "worker/rank/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/rank.h"
#include "worker/data/data.h"

/* Largest number of samples of one call, which is the largest global batch. */
#define MAX_SAMPLES 65536

struct trace {
    struct order_options order;
    int64_t step, global_batch, first, count, max_fragments;
};

static int number(const char *value, int64_t lo, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (errno || end == value || *end || v < lo) return -1;
    *out = v;
    return 0;
}

/* Finds the index of a word among the words of a field of the job spec. */
static int word(const char *value, const char *field, int *out)
{
    const char *const *words = spec_field(field)->words;
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], value)) {
            *out = i;
            return 0;
        }
    return -1;
}

static int set_of(const char *value, int *out)
{
    *out = !strcmp(value, "eval") ? SET_EVAL : SET_TRAIN;
    return *out == SET_EVAL || !strcmp(value, "train") ? 0 : -1;
}

/* Takes a word of data.packing. If TRACE_PAIRS follows it, the order is one of pairs. */
static int packing(const char *value, struct order_options *o)
{
    char name[16];
    const size_t n = strlen(value), suffix = strlen(TRACE_PAIRS);
    if (n >= sizeof name) return -1;
    memcpy(name, value, n + 1);
    o->pairs = n > suffix && !strcmp(value + n - suffix, TRACE_PAIRS);
    if (o->pairs) name[n - suffix] = 0;
    return word(name, "data.packing", &o->packing);
}

static int argument(struct trace *t, const char *arg)
{
    const struct {
        const char *key;
        int64_t least, *value;
    } numbers[] = {{"seq_len=", 1, &t->order.seq_len},
                   {"seed=", 0, &t->order.seed},
                   {"step=", 1, &t->step},
                   {"global_batch=", 1, &t->global_batch},
                   {"first=", 0, &t->first},
                   {"count=", 1, &t->count},
                   {"max_fragments=", 0, &t->max_fragments}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        size_t n = strlen(numbers[i].key);
        if (!strncmp(arg, numbers[i].key, n))
            return number(arg + n, numbers[i].least, numbers[i].value);
    }
    if (!strncmp(arg, "packing=", 8)) return packing(arg + 8, &t->order);
    if (!strncmp(arg, "overlong=", 9)) return word(arg + 9, "data.overlong", &t->order.overlong);
    if (!strncmp(arg, "set=", 4)) return set_of(arg + 4, &t->order.set);
    return -1;
}

static int arguments(struct trace *t, int argc, char **argv)
{
    *t = (struct trace){.first = -1, .count = 1, .max_fragments = 1000};
    for (int i = 0; i < argc; i++)
        if (argument(t, argv[i]) < 0) {
            fprintf(stderr, "seqrank --trace: \"%s\" is no argument, or its value is wrong\n",
                    argv[i]);
            return -1;
        }
    if (t->order.pairs &&
        (t->order.packing == PACKING_CONCAT || t->order.overlong == OVERLONG_SPLIT ||
         t->order.overlong == OVERLONG_TRUNCATE)) {
        fprintf(stderr, "seqrank --trace: pairs are not cut: want packing=best_fit" TRACE_PAIRS
                        " or packing=none" TRACE_PAIRS ", and overlong=auto, error or drop\n");
        return -1;
    }
    t->order.in_order = t->order.set == SET_EVAL;
    if (t->step && t->global_batch && t->step - 1 <= INT64_MAX / t->global_batch) {
        t->first = (t->step - 1) * t->global_batch;
        t->count = t->global_batch;
    }
    if (t->order.seq_len > 0 && t->order.seq_len <= JOB_MAX_SEQ && t->first >= 0 &&
        t->count <= MAX_SAMPLES && t->first <= INT64_MAX - t->count)
        return 0;
    fprintf(stderr,
            "seqrank --trace: want seq_len=N, and step=N global_batch=N or first=N; at "
            "most %d samples\n",
            MAX_SAMPLES);
    return -1;
}

static int print_sample(const struct data_order *o, const struct trace *t, int64_t n, struct err *e)
{
    int64_t size = data_trace(o, n, t->max_fragments, NULL, 0, e);
    if (size < 0) return -1;
    char *text = malloc((size_t)size + 1);
    if (!text) return err_set(e, ERR_IO, "out of memory");
    int rc = data_trace(o, n, t->max_fragments, text, (size_t)size + 1, e) < 0 ? -1 : 0;
    if (rc == 0) printf("%s%s", n > t->first ? "," : "", text);
    free(text);
    return rc;
}

/* Each source of pairs has two documents for each record. */
static int check_pairs(const struct data *d, struct err *e)
{
    for (int i = 0; i < data_n_sources(d); i++)
        if (data_source(d, i)->n_documents % 2)
            return err_set(e, ERR_INVALID,
                           "source %d has %lld documents, which are no pairs: leave \"" TRACE_PAIRS
                           "\" out of packing",
                           i, (long long)data_source(d, i)->n_documents);
    return 0;
}

static int print(const struct data *d, const struct trace *t, struct err *e)
{
    if (t->order.pairs && check_pairs(d, e)) return -1;
    struct data_order *o = data_order_open(d, &t->order, e);
    int rc = o ? 0 : -1;
    if (rc == 0)
        printf("{\"prepared_id\":\"%s\",\"set\":\"%s\",\"seq_len\":%lld,\"first\":%lld,"
               "\"count\":%lld,\"samples\":[",
               data_stats(d)->id, t->order.set == SET_EVAL ? "eval" : "train",
               (long long)t->order.seq_len, (long long)t->first, (long long)t->count);
    for (int64_t i = 0; rc == 0 && i < t->count; i++) rc = print_sample(o, t, t->first + i, e);
    data_order_close(o);
    if (rc == 0) printf("]}\n");
    return rc;
}

int trace_main(int argc, char **argv)
{
    struct trace t;
    struct err e = {0};
    char parent[FILE_PATH_SIZE];
    if (argc < 1 || arguments(&t, argc - 1, argv + 1) < 0) return 2;
    if (file_join(parent, &e, "%s", argv[0]) == 0) {
        size_t n = strlen(parent);
        while (n > 1 && parent[n - 1] == '/') parent[--n] = 0;
        char *slash = strrchr(parent, '/');
        if (slash) *slash = 0;
        struct data *d = data_open(slash ? parent : ".", slash ? slash + 1 : parent, DATA_TRUST,
                                   &e);
        int rc = d ? print(d, &t, &e) : -1;
        data_close(d);
        if (rc == 0 && !fflush(stdout) && !ferror(stdout)) return 0;
    }
    fprintf(stderr, "seqrank --trace: %s\n", e.text[0] ? e.text : "cannot write");
    return !e.code || e.code == ERR_INTERNAL ? 1 : RANK_EXIT_REFUSED;
}
