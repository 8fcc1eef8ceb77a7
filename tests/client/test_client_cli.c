/* test_client_cli: tests how the command line is parsed: its verbs, options and operands, and
 * arguments that are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "client/cli.h"
#include "client/help.h"
#include "client/verbs.h"
#include "tests/lib/test.h"

static const char *operands[16];

/* Parses a line of words. Returns 0, or -1 with e. */
static int parse(struct cli *c, struct err *e, const char *line)
{
    static char words[256];
    char *argv[16] = {"seqctl"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) argv[argc++] = w;
    argv[argc] = NULL;
    memset(c, 0, sizeof *c);
    memset(e, 0, sizeof *e);
    c->arg = operands;
    return cli_parse(c, argc, argv, verbs_all, e);
}

static void test_options(void)
{
    struct cli c;
    struct err e;
    CHECK(!parse(&c, &e, "submit a.json --wait --timeout 30 --set x=1 --set=y.z=2 -o json"));
    CHECK(c.verb == &verb_submit && c.opt.wait && c.opt.timeout_s == 30 && c.output == OUT_JSON);
    CHECK(c.n_args == 1 && !strcmp(c.arg[0], "a.json"));
    CHECK(c.opt.set.n == 2 && !strcmp(c.opt.set.at[1], "y.z=2"));
    CHECK(!parse(&c, &e, "submit a --timeout 0") && c.opt.timeout_s == 0);
    CHECK(!parse(&c, &e, "submit a --timeout=45s") && c.opt.timeout_s == 45);
    CHECK(!parse(&c, &e, "submit a --timeout 30m") && c.opt.timeout_s == 1800);
    CHECK(!parse(&c, &e, "watch 1 --timeout 24h") && c.opt.timeout_s == 86400);
    CHECK(!parse(&c, &e, "cancel 1 --timeout 90d") && c.opt.timeout_s == 90 * 86400);
    CHECK(!parse(&c, &e, "submit a --unset x.y --unset z -o csv") && c.output == OUT_CSV);
    CHECK(c.opt.unset.n == 2 && !strcmp(c.opt.unset.at[0], "x.y") && c.opt.last == -1);
    CHECK(!parse(&c, &e, "-q --url=h:1 submit - -w -ojsonl"));
    CHECK(c.opt.quiet && c.output == OUT_JSONL && !strcmp(c.arg[0], "-"));
    CHECK_STR(c.opt.url, "h:1");
    CHECK(!parse(&c, &e, "show -- 12"));
    CHECK(c.n_args == 1 && c.opt.limit == -1);
    CHECK(!parse(&c, &e, "ls --limit 0") && c.opt.limit == 0);
    CHECK(!parse(&c, &e, "artifacts 3 -x") == 0);
    CHECK(!parse(&c, &e, "artifacts 3 -- -x") && !strcmp(c.arg[1], "-x"));
    CHECK(!parse(&c, &e, "") && !c.verb);
    CHECK(!parse(&c, &e, "show --help") && c.opt.help); /* with --help, operands may be missing */
}

static void refused(const char *line, const char *want)
{
    struct cli c;
    struct err e;
    int rc = parse(&c, &e, line);
    CHECK_MSG(rc < 0 && strstr(e.text, want), "\"%s\" gave %d \"%s\"", line, rc, e.text);
}

static void test_refusals(void)
{
    refused("submti x", "did you mean submit?");
    refused("watc 1", "did you mean watch?");
    refused("can 1", "did you mean cancel?");
    refused("frobnicate", "seqctl has no verb \"frobnicate\"");
    refused("submit x --wiat", "did you mean wait?");
    refused("submit x --limit 3", "seqctl submit has no option --limit");
    refused("ls --wait", "seqctl ls has no option --wait");
    refused("ls --limit -1", "want an integer");
    refused("ls --limit 3x", "want an integer");
    refused("ls --limit 99999999999999999999", "want an integer");
    refused("ls --limit", "--limit needs a value");
    refused("submit x --timeout -1", "--timeout: \"-1\" is not a time: write 90s, 30m, 24h or 7d");
    refused("submit x --timeout 3w", "--timeout: \"3w\" is not a time");
    refused("submit x --timeout 999999999999", "--timeout: 999999999999 lies outside 0 to");
    refused("ls -o yml", "did you mean yaml?");
    refused("ls --unset x", "seqctl ls has no option --unset");
    refused("ls --quiet=yes", "takes no value");
    refused("show", "seqctl show needs ID (usage: seqctl show ID)");
    refused("show 1 2", "seqctl show does not take \"2\" (usage: seqctl show ID)");
    refused("pull 1", "seqctl pull needs DIR (usage");
    refused("rm", "seqctl rm needs ID (usage");
    refused("ls -fw", "each flag by itself");
}

static void test_sets_limit(void)
{
    struct cli c = {.arg = operands};
    struct err e = {0};
    char *argv[2 * (CLI_LIST + 1) + 3] = {"seqctl", "submit", "x"};
    int argc = 3;
    for (int i = 0; i <= CLI_LIST; i++) argv[argc++] = "--set", argv[argc++] = "a=1";
    CHECK(cli_parse(&c, argc, argv, verbs_all, &e) < 0);
    CHECK(e.code == ERR_TOO_LARGE);
}

static int url_of(const char *opt, const char *env, char *out, size_t size, struct err *e)
{
    struct cli c = {.opt.url = opt};
    if (env)
        setenv("SEQD_URL", env, 1);
    else
        unsetenv("SEQD_URL");
    return cli_url(&c, out, size, e);
}

static void test_url(void)
{
    struct err e = {0};
    char out[128], dir[] = "/tmp/test_client_XXXXXX", path[64];
    CHECK(!url_of(NULL, NULL, out, sizeof out, &e));
    CHECK_STR(out, "http://127.0.0.1:7433");
    CHECK(!url_of(NULL, "host:80/", out, sizeof out, &e));
    CHECK_STR(out, "http://host:80");
    CHECK(!url_of("https://a//", "host:80", out, sizeof out, &e));
    CHECK_STR(out, "https://a");
    CHECK(!url_of("unix:/run/seqd/seqd.sock", NULL, out, sizeof out, &e));
    CHECK_STR(out, "unix:/run/seqd/seqd.sock");
    CHECK(url_of("a.very.long.name.that.does.not.fit", NULL, out, 16, &e) < 0);
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/address", dir);
    CHECK(url_of(dir, NULL, out, sizeof out, &e) < 0);
    CHECK_MSG(strstr(e.text, path), "%s", e.text);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fputs("127.0.0.1:1234\n", f);
    fclose(f);
    CHECK(!url_of(NULL, dir, out, sizeof out, &e));
    CHECK_STR(out, "http://127.0.0.1:1234");
    f = fopen(path, "w");
    fputs("https://0.0.0.0:1234\n", f);
    fclose(f);
    CHECK(!url_of(dir, NULL, out, sizeof out, &e));
    CHECK_STR(out, "https://0.0.0.0:1234");
    char sock[64], want[96];
    snprintf(sock, sizeof sock, "%s/seqd.sock", dir);
    snprintf(want, sizeof want, "unix:%s", sock);
    CHECK((f = fopen(sock, "w")) && !fclose(f));
    CHECK(!url_of(dir, NULL, out, sizeof out, &e));
    CHECK_STR(out, want);
    unlink(sock);
    f = fopen(path, "w");
    fclose(f);
    CHECK(url_of(dir, NULL, out, sizeof out, &e) < 0);
    unlink(path);
    rmdir(dir);
    unsetenv("SEQD_URL");
}

/* Checks a machine on which systemd runs seqd. If no URL is given, seqctl must use the socket of
 * that seqd, and need no token. */
static void test_system_socket(void)
{
    struct err e = {0};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char out[128], want[128], dir[] = "/tmp/test_client_XXXXXX";
    const char *before = cli_system_socket;
    CHECK_STR(before, "/run/seqd/seqd.sock");
    CHECK(mkdtemp(dir) != NULL);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/seqd.sock", dir);
    cli_system_socket = a.sun_path;
    FILE *f = fopen(a.sun_path, "w");
    CHECK(f && !fclose(f));
    CHECK(!url_of(NULL, NULL, out, sizeof out, &e));
    CHECK_STR(out, "http://127.0.0.1:7433"); /* a regular file is not a socket */
    unlink(a.sun_path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a));
    CHECK(!url_of(NULL, NULL, out, sizeof out, &e));
    snprintf(want, sizeof want, "unix:%s", a.sun_path);
    CHECK_STR(out, want);
    CHECK(url_of(NULL, NULL, out, 8, &e) < 0 && e.code == ERR_TOO_LARGE);
    CHECK(!url_of("http://127.0.0.1:1", NULL, out, sizeof out, &e));
    CHECK_STR(out, "http://127.0.0.1:1");
    close(fd);
    unlink(a.sun_path);
    rmdir(dir);
    cli_system_socket = before;
}

static void test_job_id(void)
{
    static const struct {
        const char *text;
        int64_t want;
    } cases[] = {{"12", 12},         {"job/12", 12},   {"0", -CLI_USAGE},
                 {"-3", -CLI_USAGE}, {"", -CLI_USAGE}, {"99999999999999999999", -CLI_USAGE}};
    int keep = dup(STDERR_FILENO), null = -1;
    FILE *f = fopen("/dev/null", "w");
    null = fileno(f);
    dup2(null, STDERR_FILENO); /* refusals print their reasons */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cli c = {.arg = operands, .n_args = 1};
        operands[0] = cases[i].text;
        CHECK_MSG(cli_job_id(&c, 0) == cases[i].want, "\"%s\"", cases[i].text);
    }
    dup2(keep, STDERR_FILENO);
    close(keep);
    fclose(f);
}

/* Checks that every verb has a description, and that the help of a verb names each option of this
 * verb. */
static void test_help(void)
{
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    help_all(f, verbs_all);
    fclose(f);
    for (int i = 0; verbs_all[i]; i++) CHECK(strstr(out, verbs_all[i]->summary) != NULL);
    CHECK(strstr(out, "124") && strstr(out, "130"));
    free(out);
    CHECK(strstr(verb_submit.help, "--wait") && strstr(verb_submit.help, "--set"));
    CHECK(strstr(verb_ls.help, "--state") && strstr(verb_ls.help, "--limit"));
}

/* ---- every verb ------------------------------------------------------------------------------ */

/* The numbers of operands that a usage line allows. "ID [NAME]" allows 1 or 2, and "ID..." allows
 * 1 or more. */
struct usage {
    int least, most;
    bool any;
};

static struct usage read_words(const char *at, const char *end)
{
    struct usage u = {0, 0, false}, best = {99, 0, false};
    while (at < end) {
        if (*at == ' ') {
            at++;
        } else if (*at == '[') { /* optional */
            const char *close = strchr(at, ']');
            const struct usage in = read_words(at + 1, close);
            u.most += in.most, u.any |= in.any;
            at = close + 1;
        } else if (at[0] == '|') { /* an alternative, whose words are counted from 0 again */
            if (u.least < best.least) best.least = u.least;
            if (u.most > best.most) best.most = u.most;
            best.any |= u.any, u = (struct usage){0};
            at++;
        } else {
            const char *word = at;
            while (at < end && *at != ' ') at += *at == '[' ? strcspn(at, "]") + 1 : 1;
            if (at - word >= 3 && !strncmp(at - 3, "...", 3)) u.any = true;
            if (at - word == 3 && u.any) continue; /* "..." repeats the word before it */
            u.least++, u.most++;
        }
    }
    if (u.least < best.least) best.least = u.least;
    if (u.most > best.most) best.most = u.most;
    best.any |= u.any;
    return best;
}

/* Runs a command line with n operands, as main() does. Returns the exit status, and stores the
 * output in `said`. */
static int run_verb(const struct verb *v, int n, const char *option, char *said, size_t size)
{
    char *argv[8] = {"seqctl", (char *)v->name};
    int argc = 2;
    FILE *f = tmpfile();
    const int keep = dup(STDERR_FILENO);
    while (argc < 2 + n) argv[argc++] = "x";
    if (option) argv[argc++] = (char *)option;
    dup2(fileno(f), STDERR_FILENO);
    const int rc = cli_run(argc, argv, verbs_all);
    fflush(stderr);
    dup2(keep, STDERR_FILENO);
    close(keep);
    rewind(f);
    const size_t got = fread(said, 1, size - 1, f);
    said[got] = 0;
    fclose(f);
    return rc;
}

/* Checks that the usage line of a verb's help matches the operands that it accepts. */
static void check_synopsis(const struct verb *v)
{
    const struct usage u = read_words(v->operands, v->operands + strlen(v->operands));
    char *out = NULL, line[128];
    struct cli c;
    struct err e;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    help_verb(f, v);
    fclose(f);
    snprintf(line, sizeof line, "usage: seqctl %s%s%s", v->name, *v->operands ? " " : "",
             v->operands);
    CHECK_MSG(!strncmp(out, line, strlen(line)), "%s: \"%s\"", v->name, out);
    free(out);
    snprintf(line, sizeof line, "%s --help", v->name);
    CHECK_MSG(!parse(&c, &e, line) && c.opt.help && c.verb == v, "%s: %s", line, e.text);
    if (v == &verb_completion) return; /* scripts pass it all words of a command line */
    CHECK_MSG(u.least == v->min_args && (u.any ? v->max_args > u.most : v->max_args == u.most),
              "%s %s: %d to %d operands, takes %d to %d", v->name, v->operands, u.least, u.most,
              v->min_args, v->max_args);
}

static void check_refusals(const struct verb *v)
{
    char said[1024], name[64];
    int rc = run_verb(v, v->min_args, "--no-such-option", said, sizeof said);
    CHECK_MSG(rc == CLI_USAGE && strstr(said, "\"no-such-option\""), "%s: %d, %s", v->name, rc,
              said);
    for (int i = 0; i < v->min_args; i++) {
        rc = run_verb(v, i, NULL, said, sizeof said);
        help_operand(v, i, name, sizeof name);
        CHECK_MSG(rc == CLI_USAGE && strstr(said, " needs ") && strstr(said, name) && *name &&
                      strstr(said, v->operands),
                  "%s of %d operands: %d, %s", v->name, i, rc, said);
    }
    if (v->max_args > 4) return;
    rc = run_verb(v, v->max_args + 1, NULL, said, sizeof said);
    CHECK_MSG(rc == CLI_USAGE && strstr(said, "does not take \"x\""), "%s: %d, %s", v->name, rc,
              said);
}

/* Checks that options of other verbs are refused by name. */
static void check_options(const struct verb *v)
{
    struct cli_option_info o;
    for (int i = 0; cli_option_at(i, &o); i++) {
        char option[64], said[1024];
        const bool own = !o.need || (o.need & v->options);
        snprintf(option, sizeof option, o.takes_value ? "--%s=1" : "--%s", o.name);
        if (own) continue;
        const int rc = run_verb(v, v->min_args, option, said, sizeof said);
        CHECK_MSG(rc == CLI_USAGE && strstr(said, v->name) && strstr(said, o.name), "%s %s: %d, %s",
                  v->name, option, rc, said);
    }
}

static void test_verbs(void)
{
    int n = 0;
    for (; verbs_all[n]; n++) {
        check_synopsis(verbs_all[n]);
        check_refusals(verbs_all[n]);
        check_options(verbs_all[n]);
        for (int k = 0; k < n; k++) CHECK(strcmp(verbs_all[k]->name, verbs_all[n]->name));
    }
    CHECK(n >= 41);
}

int main(void)
{
    RUN(test_options);
    RUN(test_refusals);
    RUN(test_sets_limit);
    RUN(test_url);
    RUN(test_system_socket);
    RUN(test_job_id);
    RUN(test_help);
    RUN(test_verbs);
    return test_done("client_cli");
}
