/* render_templates: renders templates for check_templates.py. argv[1] is a template, and argv[2]
 * the time in seconds. Every line of standard input has the variables of one rendering. The answer
 * to a line is "ok SIZE SPANS\n", the bytes, a newline and SPANS lines "BEGIN END\n", or "error
 * TEXT\n". If the template does not compile, the answer is "refused TEXT\n". */
#include <stdio.h>
#include <stdlib.h>

#include "worker/jinja/template.h"

static char *read_all(const char *path, int64_t *size)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(1 << 20);
    if (!f || !text) exit(2);
    *size = (int64_t)fread(text, 1, 1 << 20, f);
    fclose(f);
    return text;
}

static void answer(const struct template *t, const char *line, int64_t n, int64_t now_s,
                   struct template_output *o)
{
    struct err e;
    if (jinja_render(t, line, n, now_s, o, &e)) {
        printf("error %s\n", e.text);
    } else {
        printf("ok %lld %lld\n", (long long)o->size, (long long)o->n_spans);
        fwrite(o->text, 1, (size_t)o->size, stdout);
        printf("\n");
        for (int64_t i = 0; i < o->n_spans; i++)
            printf("%lld %lld\n", (long long)o->span[i].begin, (long long)o->span[i].end);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct err e;
    int64_t size;
    if (argc != 3) return 2;
    char *text = read_all(argv[1], &size), *line = NULL;
    struct template *t = jinja_create(text, size, &e);
    struct template_output o = {0};
    size_t room = 0;
    if (!t) printf("refused %s\n", e.text);
    for (ssize_t n; t && (n = getline(&line, &room, stdin)) > 0;)
        answer(t, line, n, atoll(argv[2]), &o);
    jinja_output_fini(&o);
    jinja_destroy(t);
    free(line);
    free(text);
    return t ? 0 : 1;
}
