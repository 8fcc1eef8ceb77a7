/* backup.c: makes a copy of seqd's database and secrets while seqd runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "api/core/sha256.h"
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

struct backup_sink {
    int fd, error; /* errno of the first failed write */
};

static void on_bytes(void *arg, const char *p, size_t n)
{
    struct backup_sink *s = arg;
    for (size_t done = 0; done < n && !s->error;) {
        const ssize_t k = write(s->fd, p + done, n - done);
        if (k < 0 && errno != EINTR) s->error = errno;
        if (k > 0) done += (size_t)k;
    }
}

static int download(struct cli *c, const char *name, int fd)
{
    char path[256], escaped[192];
    struct err e = {0};
    struct backup_sink s = {fd, 0};
    snprintf(path, sizeof path, "/v1/backup/%s", http_escape(escaped, sizeof escaped, name));
    struct http_stream *h = http_open(
        c->http, &(struct http_request){.method = "GET", .path = path}, on_bytes, &s, &e);
    if (!h) return cli_fail(CLI_ERROR, "%s", e.text);
    while (!http_done(h, &e) && !s.error) http_turn(c->http, 1000, -1);
    int rc = CLI_OK;
    if (!s.error && fsync(fd)) s.error = errno;
    if (s.error)
        rc = cli_fail(CLI_ERROR, "the backup cannot be written: %s", strerror(s.error));
    else if (e.code != ERR_NONE)
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    else if (http_answer(h)->status != 200)
        rc = api_refused(http_answer(h), path);
    http_close(h);
    return rc;
}

/* Downloads to FILE.part and renames it to FILE, so that a broken download never looks like a
 * backup. Only its owner may read FILE, because a backup has every job of every user and the
 * secrets of seqd. */
static int fetch(struct cli *c, const struct jv *made, const char *file)
{
    char part[1024], have[SHA256_HEX], size[TEXT_SHORT];
    struct err e = {0};
    if ((size_t)snprintf(part, sizeof part, "%s.part", file) >= sizeof part)
        return cli_fail(CLI_USAGE, "%.60s...: the name is too long: give a shorter one", file);
    const int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return cli_fail(CLI_ERROR, "%s cannot be made: %s", part, strerror(errno));
    int rc = download(c, jv_str(made, "name", ""), fd);
    if (close(fd) && !rc)
        rc = cli_fail(CLI_ERROR, "%s cannot be written: %s", part, strerror(errno));
    if (!rc && sha256_file(part, have, NULL, &e)) rc = cli_fail(CLI_ERROR, "%s", e.text);
    if (!rc && strcmp(have, jv_str(made, "sha256", "")))
        rc = cli_fail(CLI_ERROR, "%s does not have the digest that seqd gave: run this again",
                      part);
    if (!rc && rename(part, file))
        rc = cli_fail(CLI_ERROR, "%s cannot be renamed to %s: %s", part, file, strerror(errno));
    if (rc) unlink(part);
    if (!rc)
        cli_say(c, "%s: %s, with the secrets of seqd: keep it as you keep a private key", file,
                text_bytes(size, jv_int(made, "bytes", 0)));
    return rc;
}

static int backup_run(struct cli *c)
{
    struct jv *made = NULL;
    if (!access(c->arg[0], F_OK))
        return cli_fail(CLI_USAGE, "%s exists: give a new name", c->arg[0]);
    int rc = api_post(c, "/v1/backup", NULL, NULL, &made);
    if (!rc) rc = fetch(c, made, c->arg[0]);
    if (!rc) api_print(c, made);
    jv_free(made);
    return rc;
}

const struct verb verb_backup = {
    .name = "backup",
    .operands = "FILE",
    .summary = "a copy of seqd's database and secrets, while it runs",
    .help =
        "Makes a backup on the server and downloads it to FILE, a new file (0600). Jobs run on\n"
        "meanwhile; the copy is the state of one moment, and its digest is checked. For admins.\n"
        "\n"
        "FILE has the secrets too (secret, pki/ca.pem and token of the state directory), not\n"
        "encrypted: with it one can act as any node. Logs of ranks, uploads, checkpoints and "
        "the\n"
        "configuration are not in it.\n"
        "\n"
        "Restore: stop seqd, put FILE into an empty state directory as seqd.db, start seqd. It\n"
        "writes the secrets beside it. New jobs get ids from the next million on.\n"
        "\n"
        "Example\n"
        "  seqctl backup seqd-monday.db\n",
    .min_args = 1,
    .max_args = 1,
    .run = backup_run,
};
