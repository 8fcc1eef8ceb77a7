/* cli.h: one invocation of seqctl, with its verb, options and operands. Data is written to stdout,
 * and messages to stderr. */
#ifndef SEQD_CLIENT_CLI_H
#define SEQD_CLIENT_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* Exit codes. They are part of the interface and are documented in `seqctl help`. */
enum cli_exit {
    CLI_OK = 0,
    CLI_ERROR = 1,
    CLI_USAGE = 2,
    CLI_NOT_FOUND = 3,
    CLI_CONFLICT = 4,
    CLI_JOB_FAILED = 10,
    CLI_JOB_CANCELLED = 11,
    CLI_TIMEOUT = 124,
    CLI_DETACHED = 130
};

#define CLI_LONGEST_S ((int64_t)10000000 * 86400) /* longest time that int64_t can hold in us */

enum cli_output { OUT_TABLE, OUT_WIDE, OUT_JSON, OUT_JSONL, OUT_NAME, OUT_YAML, OUT_CSV, OUT_N };

/* The options of individual verbs. The global options are not listed. */
enum cli_option {
    OPT_WAIT = 1 << 0,
    OPT_DRY_RUN = 1 << 1,
    OPT_NAME = 1 << 2,
    OPT_SET = 1 << 3,
    OPT_STATE = 1 << 4,
    OPT_LIMIT = 1 << 5,
    OPT_FOLLOW = 1 << 6,
    OPT_RANK = 1 << 7,
    OPT_EPOCH = 1 << 8,
    OPT_FILE = 1 << 9,
    OPT_TIMEOUT = 1 << 10,
    OPT_FIELD = 1 << 11,
    OPT_YES = 1 << 12,
    OPT_OLDER = 1 << 13,
    OPT_PART = 1 << 14,
    OPT_UNSET = 1 << 15,
    OPT_LAST = 1 << 16,
    OPT_USER = 1 << 17,
    OPT_ROLE = 1 << 18,
    OPT_LABEL = 1 << 19,
    OPT_TTL = 1 << 20,
    OPT_OWNER = 1 << 21,
    OPT_JOIN = 1 << 22, /* --names, --uses */
    OPT_ARTIFACTS = 1 << 23,
    OPT_PRIORITY = 1 << 24,
    OPT_REASON = 1 << 25,
    OPT_CONVERT = 1 << 26, /* --convert, --column */
    OPT_CHAT = 1 << 27,    /* --system, --max-tokens, --temperature, --raw */
    OPT_AFTER = 1 << 28    /* --after, --after-any */
};

/* The values of an option that may be repeated, in the order in which they were given. */
#define CLI_LIST 32
struct cli_list {
    int n;
    const char *at[CLI_LIST];
    int place[CLI_LIST]; /* place of at[i] among the values of all lists, from left to right */
};

struct cli_options {
    bool wait, dry_run, follow, yes, artifacts, quiet, no_color, help, version, convert, raw;
    const char *older_than, *part;
    const char *name, *state, *file, *field, *url, *ca, *token_file;
    const char *after, *after_any; /* jobs with commas between them */
    const char *user, *role, *ttl, *owner, *names, *reason, *system, *temperature;
    const char *output; /* the word after -o */
    struct cli_list set, unset, label, column;
    int n_listed; /* number of values of all lists */
    /* -1 for an option that is not given */
    int64_t limit, rank, epoch, timeout_s, uses, last, priority, max_tokens;
};

struct http;
struct cli {
    /* the verb that runs, and all verbs, the last of which is NULL */
    const struct verb *verb, *const *verbs;
    struct cli_options opt;
    int n_args;
    const char **arg; /* operands */
    enum cli_output output;
    /* properties of stdout; stderr is checked only when needed */
    bool color, utf8, tty;
    struct http *http;
};

struct verb {
    const char *name, *operands; /* "submit", "FILE|-" */
    const char *summary;         /* its line in the list of verbs */
    const char *help;            /* text of `seqctl help VERB` below the usage line */
    uint32_t options;            /* bits of enum cli_option */
    int min_args, max_args;
    int (*run)(struct cli *c); /* returns enum cli_exit */
    /* Tells whether the verb needs no seqd for these operands. If it returns true, c->http is
     * NULL. If `alone` is NULL, the verb always needs seqd. */
    bool (*alone)(const struct cli *c);
};

/* Parses argv and runs the verb. `verbs` ends with NULL, and help lists them in this order. */
int cli_run(int argc, char **argv, const struct verb *const *verbs);
/* Parses `argv` into *c. c->arg must have room for argc pointers. Returns -1 with a sentence on a
 * usage error. c->verb is NULL if `argv` is empty, or asks for help or the version. */
int cli_parse(struct cli *c, int argc, char **argv, const struct verb *const *verbs, struct err *e);
/* A row of the table of options, for completion. cli_option_at returns false if there is no row
 * i. */
struct cli_option_info {
    const char *name; /* "wait" */
    char letter;      /* 0 if it has none */
    bool takes_value;
    uint32_t need; /* bits of enum cli_option; 0 means that every verb accepts the option */
};
bool cli_option_at(int i, struct cli_option_info *out);
extern const char *const cli_outputs[OUT_N + 1]; /* words for -o, then NULL */
/* socket of a seqd that systemd runs; tests set a different path */
extern const char *cli_system_socket;
/* Finds the address of seqd. It is the first of these that is given: --url, SEQD_URL, the server
 * that seqctl login or contexts chose last, cli_system_socket if that socket exists, and the
 * default. A text that begins with '/' or '.' is a state directory, whose file `address` is read.
 * If that address is https, or if the directory has no token, the directory's Unix socket is
 * preferred if it exists. The result never ends with '/'. */
int cli_url(const struct cli *c, char *out, size_t size, struct err *e);
/* Tells whether the address may change while a verb runs. It may change if it comes from a state
 * directory, because a restarted seqd may write a new address there. Every other address is kept
 * for the whole verb. In the meantime seqctl login or contexts may choose a second server. The
 * verb must not use that server, because it has other jobs and must not receive the token of the
 * first server. */
bool cli_url_moves(const struct cli *c);
/* Finds the file whose first line is the token. It is the first of these that is given:
 * --token-file, SEQD_TOKEN_FILE, and the token file of the state directory. Returns false if there
 * is none of them; out is then "". */
bool cli_token_file(const struct cli *c, char *out, size_t size);
/* Finds the token for url, an address from cli_url. It is that of cli_token_file, or otherwise that
 * of seqctl login (api/core/context.h). If neither has a token, out is "". */
int cli_token(const struct cli *c, const char *url, char *out, size_t size, struct err *e);
/* Returns the file that --ca names, or otherwise SEQD_CA. Returns NULL if neither is given. */
const char *cli_ca(const struct cli *c);

/* Prints a message for a person on stderr, unless -q is given. Control characters other than line
 * breaks and tabs become '?'. */
void cli_say(const struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Draws a progress line on the terminal of stderr. The next such line or a message replaces it,
 * and "" removes it. The caller must have removed control characters. */
void cli_draw(const char *line);
/* Prints "seqctl: ..." on stderr, even with -q. Returns code. */
int cli_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reads operand i as a job, which is given by its id or its name (name.h). On failure prints a
 * message and returns -(exit code). */
int64_t cli_job_id(struct cli *c, int i);

#endif
