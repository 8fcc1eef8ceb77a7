/* describe_configs.c: prints the sizes and tensors that seqd reads from a config.json.
 * make_configs.py compares them with the Python package transformers.
 *
 *     describe_configs      texts on stdin, one per line; one answer per line on stdout:
 *                           "! sentence", or the sizes as JSON and then, each after a tab,
 *                           "name dim,dim" of every tensor */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/family/config.h"
#include "worker/hf/hf.h"

static void tensors(const struct model_shape *m)
{
    const int n = param_tensors(m);
    struct param *all = calloc((size_t)n, sizeof *all);
    if (!all) abort();
    param_list(m, all, n);
    for (int i = 0; i < n; i++) {
        struct param p = all[i];
        if (!p.n_dims) {
            p.n_dims = p.cols ? 2 : 1;
            p.dims[0] = p.rows;
            p.dims[1] = p.cols;
        }
        printf("\t%s ", p.name);
        for (int k = 0; k < p.n_dims; k++) printf("%s%lld", k ? "," : "", (long long)p.dims[k]);
    }
    free(all);
}

int main(void)
{
    static char json[1 << 16];
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    while ((n = getline(&line, &size, stdin)) > 0) {
        static struct job_spec s;
        struct err e = {0};
        spec_defaults(&s);
        if (config_take(&s, line, (size_t)n, CONFIG_JOB, &e)) {
            printf("! %s\n", e.text);
        } else {
            const int64_t length = hf_shape_json(&s.model.shape, json, sizeof json);
            if (length <= 0) abort();
            json[strcspn(json, "\n")] = 0;
            printf("%s", json);
            tensors(&s.model.shape);
            putchar('\n');
        }
        fflush(stdout);
    }
    free(line);
    return 0;
}
