/* programs.c: starts the programs of one `seqd run`, and calls seqctl. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "daemon/run/one_run.h"

static int open_log(const struct one_run *r, const char *name, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/%s.log", r->state, name)) return -1;
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return fd < 0 ? err_errno(e, "%s", path) : fd;
}

void run_say_log(const struct one_run *r, const char *name)
{
    char path[FILE_PATH_SIZE], text[2049];
    if (file_join(path, NULL, "%s/%s.log", r->state, name)) return;
    FILE *f = fopen(path, "re");
    if (f && fseek(f, -2048, SEEK_END)) rewind(f);
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    fputs(text, stderr);
}

int run_start_logged(struct one_run *r, int which, int ends, const char *name, char *const argv[],
                     int in, struct err *e)
{
    const int log = open_log(r, name, e);
    if (log < 0) return -1;
    const struct child_files f = {in, log, log};
    const int rc = children_start(&r->c, which, ends, argv, &f, e);
    close(log);
    return rc;
}

void run_ctl_words(struct one_run *r, char program[FILE_PATH_SIZE], char *argv[CTL_WORDS],
                   const char *const *words)
{
    int n = 0;
    file_join(program, NULL, "%s/seqctl", r->bin);
    argv[n++] = program;
    argv[n++] = "--url", argv[n++] = r->url;
    while (*words && n < CTL_WORDS - 1) argv[n++] = (char *)*words++;
    argv[n] = NULL;
}

int run_program(struct one_run *r, char *const argv[], FILE **answer)
{
    struct err e;
    FILE *f = *answer = tmpfile();
    if (!f) return FAILED;
    const struct child_files files = {-1, fileno(f), r->o.verbose ? 2 : -1};
    if (!children_start(&r->c, ASKING, SIGTERM, argv, &files, &e))
        while (children_runs(&r->c, ASKING)) children_wait(&r->c, LOOK_MS);
    rewind(f);
    return r->c.child[ASKING].status;
}

int run_ask_program(struct one_run *r, char *out, size_t size, char *const argv[])
{
    FILE *f;
    const int rc = run_program(r, argv, &f);
    const size_t n = f ? fread(out, 1, size - 1, f) : 0;
    out[n] = 0;
    if (f) fclose(f);
    return rc;
}

int run_ask(struct one_run *r, char *out, size_t size, const char *const *words)
{
    char program[FILE_PATH_SIZE], *argv[CTL_WORDS];
    run_ctl_words(r, program, argv, words);
    return run_ask_program(r, out, size, argv);
}

int run_tell(struct one_run *r, const char *path, const char *const *words)
{
    char program[FILE_PATH_SIZE], *argv[CTL_WORDS];
    struct err e = {0};
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : 2;
    if (fd < 0) return err_errno(&e, "%s", path), fprintf(stderr, "seqd run: %s\n", e.text), FAILED;
    run_ctl_words(r, program, argv, words);
    const struct child_files files = {-1, fd, 2};
    if (!children_start(&r->c, ASKING, SIGTERM, argv, &files, &e))
        while (children_runs(&r->c, ASKING)) children_wait(&r->c, LOOK_MS);
    if (path) close(fd);
    return r->c.child[ASKING].status;
}
