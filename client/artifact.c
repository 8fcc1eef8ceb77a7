/* artifact.c: lists and downloads the artifacts of a job, and lists its checkpoints. */
#include "client/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/sha256.h"
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

static char *artifact_path(char *out, size_t size, int64_t id, const char *name)
{
    char escaped[1024];
    snprintf(out, size, "/v1/jobs/%lld/artifacts/%s", (long long)id,
             http_escape(escaped, sizeof escaped, name));
    return out;
}

int artifact_json(struct cli *c, int64_t id, const char *name, struct jv **out)
{
    char path[1200];
    return api_get(c, artifact_path(path, sizeof path, id, name), out);
}

struct sink {
    int fd;
    int64_t size;  /* bytes in the file, including those of earlier requests */
    int64_t begun; /* bytes in the file before this request */
    const struct http_stream *stream;
    int error; /* errno of the first write that failed */
};

static void on_bytes(void *arg, const char *p, size_t n)
{
    struct sink *s = arg;
    /* Status 200 means that the server sends the whole file although only a part was asked for. So
     * begin the file again. */
    if (s->begun && http_answer(s->stream)->status == 200) {
        if (ftruncate(s->fd, 0) || lseek(s->fd, 0, SEEK_SET)) s->error = errno;
        s->begun = s->size = 0;
    }
    for (size_t done = 0; done < n && !s->error;) {
        ssize_t k = write(s->fd, p + done, n - done);
        if (k < 0 && errno != EINTR) s->error = errno;
        if (k > 0) done += (size_t)k;
    }
    s->size += (int64_t)n;
}

/* Downloads the bytes that the stream s has not received yet. Returns an enum cli_exit, and prints
 * the message of an error. */
static int download(struct cli *c, const char *path, struct sink *s)
{
    struct err e = {0};
    struct http_stream *h = http_open(
        c->http, &(struct http_request){.method = "GET", .path = path, .range_from = s->begun},
        on_bytes, s, &e);
    if (!h) return cli_fail(CLI_ERROR, "%s", e.text);
    s->stream = h;
    while (!http_done(h, &e) && !s->error) http_turn(c->http, 1000, -1);
    const int status = http_answer(h)->status;
    int rc = CLI_OK;
    if (s->error)
        rc = cli_fail(CLI_ERROR, "the output cannot be written: %s", strerror(s->error));
    else if (e.code != ERR_NONE)
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    else if (status != 200 && status != 206 &&
             !(status == 416 && s->begun)) /* 416 means that no bytes are left */
        rc = api_refused(http_answer(h), path);
    http_close(h);
    return rc;
}

/* Finds the digest of the artifact `name` in the job's list. `out` is "" if the list has no digest
 * for it. */
static int listed_digest(struct cli *c, int64_t id, const char *name, char out[SHA256_HEX])
{
    char path[64];
    struct jv *v = NULL;
    out[0] = 0;
    snprintf(path, sizeof path, "/v1/jobs/%lld/artifacts", (long long)id);
    int rc = api_list(c, path, &v);
    const struct jv *data = jv_get(v, "data");
    for (size_t i = 0; i < jv_len(data);
         i++) { /* keeps the last match, because an attempt may write the artifact again */
        const struct jv *a = jv_at(data, i, NULL);
        if (!strcmp(jv_str(a, "name", ""), name))
            snprintf(out, SHA256_HEX, "%s", jv_str(a, "sha256", ""));
    }
    jv_free(v);
    return rc;
}

/* Empties FILE.part unless the artifact has a digest. With a digest, the end of the download
 * proves that the bytes in FILE.part are those of the artifact. Without a digest, they may belong
 * to a different job or to an earlier attempt. */
static int keep_proved(struct cli *c, int64_t id, const char *name, const char *part,
                       struct sink *s)
{
    char want[SHA256_HEX], size[TEXT_SHORT];
    int rc = s->begun ? listed_digest(c, id, name, want) : CLI_OK;
    if (rc || !s->begun) return rc;
    if (*want) {
        cli_say(c, "%s: continuing after %s", part, text_bytes(size, s->begun));
        return CLI_OK;
    }
    cli_say(c, "%s: beginning again, as %s has no digest yet", part, name);
    s->size = s->begun = 0;
    if (!ftruncate(s->fd, 0)) return CLI_OK;
    return cli_fail(CLI_ERROR, "%s cannot be emptied: %s", part, strerror(errno));
}

/* Compares the digest of FILE.part with the listed digest. `continued` means that the first bytes
 * of FILE.part come from an earlier download. Only a digest can prove that these bytes are
 * right. */
static int check_digest(struct cli *c, int64_t id, const char *name, const char *part,
                        bool continued)
{
    char want[SHA256_HEX], have[SHA256_HEX];
    struct err e = {0};
    int rc = listed_digest(c, id, name, want);
    if (rc || (!*want && !continued)) return rc;
    if (sha256_file(part, have, NULL, &e)) return cli_fail(CLI_ERROR, "%s", e.text);
    if (!strcmp(have, want)) return CLI_OK;
    unlink(part);
    return cli_fail(CLI_ERROR,
                    "%s does not have the digest that job %lld gave it; what was downloaded is "
                    "removed, run this again",
                    name, (long long)id);
}

/* Downloads to FILE.part and renames it to FILE, so that a broken download never looks complete.
 * If the artifact has a digest, the next download continues the part. */
static int fetch(struct cli *c, int64_t id, const char *name)
{
    char path[1200], part[1024], size[TEXT_SHORT];
    const char *file = c->opt.file;
    struct sink s = {.fd = STDOUT_FILENO};
    struct stat st;
    artifact_path(path, sizeof path, id, name);
    if (!file) {
        if (isatty(STDOUT_FILENO))
            return cli_fail(CLI_USAGE, "%s would go to the terminal: give --file FILE, or a pipe",
                            name);
        return download(c, path, &s);
    }
    if ((size_t)snprintf(part, sizeof part, "%s.part", file) >= sizeof part)
        return cli_fail(CLI_USAGE, "--file %.60s...: the name is too long: give a shorter one",
                        file);
    s.fd = open(part, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (s.fd < 0 || fstat(s.fd, &st))
        return cli_fail(CLI_ERROR, "%s cannot be opened: %s", part, strerror(errno));
    s.size = s.begun = st.st_size;
    int rc = keep_proved(c, id, name, part, &s);
    if (!rc) rc = download(c, path, &s);
    if (close(s.fd) && !rc)
        rc = cli_fail(CLI_ERROR, "%s cannot be written: %s", part, strerror(errno));
    if (rc && s.size) cli_say(c, "%s is kept: run this again to continue from there", part);
    if (rc && !s.size) unlink(part);
    if (!rc) rc = check_digest(c, id, name, part, s.begun > 0);
    if (!rc && rename(part, file))
        rc = cli_fail(CLI_ERROR, "%s cannot be renamed to %s: %s", part, file, strerror(errno));
    if (!rc) cli_say(c, "%s: %s", file, text_bytes(size, s.size));
    return rc;
}

static void print_list(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"NAME", "SIZE", "SHA256", NULL};
    const struct jv *data = jv_get(list, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        char size[TEXT_SHORT], sha[20], name[512];
        const struct jv *a = jv_at(data, i, NULL);
        if (c->output == OUT_NAME) {
            puts(text_safe(name, sizeof name, jv_str(a, "name", "?")));
            continue;
        }
        text_table_add(&t, jv_str(a, "name", "?"));
        text_table_add(&t, text_bytes(size, jv_int(a, "size", jv_int(a, "bytes", 0))));
        snprintf(sha, sizeof sha, "%.16s", jv_str(a, "sha256", ""));
        text_table_add(&t, sha);
    }
    if (c->output != OUT_NAME) text_table_print(&t, stdout);
}

static int list(struct cli *c, int64_t id, const char *what,
                void (*print)(const struct cli *, const struct jv *))
{
    char path[64];
    struct jv *v = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%lld/%s", (long long)id, what);
    int rc = api_list(c, path, &v);
    if (!rc && !api_print(c, v)) print(c, v);
    if (!rc && !jv_len(jv_get(v, "data"))) cli_say(c, "job %lld has no %s", (long long)id, what);
    jv_free(v);
    return rc;
}

static int artifacts_run(struct cli *c)
{
    int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    return c->n_args == 2 ? fetch(c, id, c->arg[1]) : list(c, id, "artifacts", print_list);
}

static void print_checkpoints(const struct cli *c, const struct jv *v)
{
    static const char *const head[] = {"STEP", "EPOCH", "PATH", NULL};
    const struct jv *data = jv_get(v, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        char number[TEXT_SHORT], path[1024];
        const struct jv *k = jv_at(data, i, NULL);
        const char *at = jv_str(k, "path", "");
        if (c->output == OUT_NAME) {
            puts(text_safe(path, sizeof path, at));
            continue;
        }
        snprintf(number, sizeof number, "%lld", (long long)jv_int(k, "step", 0));
        text_table_add(&t, number);
        snprintf(number, sizeof number, "%lld", (long long)jv_int(k, "epoch", 0));
        text_table_add(&t, number);
        text_table_add(&t, at);
    }
    if (c->output != OUT_NAME) text_table_print(&t, stdout);
}

static int checkpoints_run(struct cli *c)
{
    int64_t id = cli_job_id(c, 0);
    return id < 0 ? (int)-id : list(c, id, "checkpoints", print_checkpoints);
}

const struct verb verb_artifacts = {
    .name = "artifacts",
    .operands = "ID [NAME]",
    .summary = "result files of a job, or one of them",
    .min_args = 1,
    .max_args = 2,
    .run = artifacts_run,
    .options = OPT_FILE,
    .help = "Lists the files a job left, or fetches one to stdout or into a file.\n\n"
            "  --file FILE     write it there: FILE.part until it is whole and has its digest; a "
            "download\n"
            "                  that broke continues where it broke; of a file without a digest, "
            "which\n"
            "                  still grows, it begins again\n\n"
            "  seqctl artifacts 12\n"
            "  seqctl artifacts 12 verify.json --file verify.json",
};
const struct verb verb_checkpoints = {
    .name = "checkpoints",
    .operands = "ID",
    .summary = "checkpoints of a job and where they are",
    .min_args = 1,
    .max_args = 1,
    .run = checkpoints_run,
    .help =
        "Lists the checkpoints of a job. PATH/hf is a directory that transformers loads, "
        "PATH/adapter\n"
        "of a training of adapters one that peft loads; PATH is what checkpoint.resume takes. -o\n"
        "name prints the paths alone, oldest first.",
};
