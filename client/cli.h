/* cli.h: one invocation of seqctl: its verb, options and operands, and where output goes.
 * stdout is data, stderr is messages. */
#ifndef SEQD_CLIENT_CLI_H
#define SEQD_CLIENT_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* Exit codes: part of the interface, documented in `seqctl help`. */
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

#define CLI_LONGEST_S ((int64_t)10000000 * 86400) /* longest time: int64_t holds it in us */

enum cli_output { OUT_TABLE, OUT_WIDE, OUT_JSON, OUT_JSONL, OUT_NAME, OUT_YAML, OUT_CSV, OUT_N };

/* The options that verbs take. The global ones are not listed. */
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
    OPT_REASON = 1 << 25
};

/* Values of an option that may be repeated, in their order. */
#define CLI_LIST 32
struct cli_list {
    int n;
    const char *at[CLI_LIST];
};

struct cli_options {
    bool wait, dry_run, follow, yes, artifacts, quiet, no_color, help, version;
    const char *older_than, *part;
    const char *name, *state, *file, *field, *url, *ca, *token_file;
    const char *user, *role, *ttl, *owner, *names, *reason;
    const char *output; /* the word after -o */
    struct cli_list set, unset, label;
    int64_t limit, rank, epoch, timeout_s, uses, last, priority; /* -1: not given */
};

struct http;
struct cli {
    const struct verb *verb, *const *verbs; /* the verb that runs; all verbs, NULL-terminated */
    struct cli_options opt;
    int n_args;
    const char **arg; /* operands */
    enum cli_output output;
    bool color, utf8, tty; /* properties of stdout; stderr is asked for its tty when needed */
    struct http *http;
};

struct verb {
    const char *name, *operands; /* "submit", "FILE|-" */
    const char *summary;         /* one line of the list of verbs */
    const char *help;            /* text of `seqctl help VERB` beneath the usage line */
    uint32_t options;            /* bits of enum cli_option */
    int min_args, max_args;
    int (*run)(struct cli *c); /* returns enum cli_exit */
    /* Tells whether the verb does without seqd for these operands; http is NULL then. alone NULL:
     * the verb always needs seqd. */
    bool (*alone)(const struct cli *c);
};

/* Parses argv and runs the verb. verbs: NULL-terminated, listed by help in this order. */
int cli_run(int argc, char **argv, const struct verb *const *verbs);
/* Parses into *c, whose arg must have room for argc pointers. Returns -1 with a sentence on a
 * usage error. c->verb NULL: argv names no verb (it asks for help or the version, or is empty). */
int cli_parse(struct cli *c, int argc, char **argv, const struct verb *const *verbs, struct err *e);
/* A row of the table of options, for completion. cli_option_at returns false if there is no i-th
 * row. */
struct cli_option_info {
    const char *name; /* "wait" */
    char letter;      /* 0: none */
    bool takes_value;
    uint32_t need; /* bits of enum cli_option; 0: every verb takes it */
};
bool cli_option_at(int i, struct cli_option_info *out);
extern const char *const cli_outputs[OUT_N + 1]; /* words for -o, then NULL */
extern const char *cli_system_socket; /* socket of a seqd that systemd runs; tests set their own */
/* Finds the address of seqd: --url, else SEQD_URL, else the server that seqctl login or contexts
 * chose last, else cli_system_socket if it exists, else the default. A text that begins with '/'
 * or '.' is a state directory, whose file `address` is read; if that says https or no token lies
 * beside it, its Unix socket is taken, if it exists. The result never ends with '/'. */
int cli_url(const struct cli *c, char *out, size_t size, struct err *e);
/* Tells whether the address may change while a verb runs: it comes from a state directory, in
 * which a restarted seqd may write another one. Every other address stays for the whole verb, even
 * if seqctl login or contexts choose another server meanwhile: that server has other jobs, and
 * must not get the token of this one. */
bool cli_url_moves(const struct cli *c);
/* Finds the token for url, an address from cli_url: from --token-file, else SEQD_TOKEN_FILE, else
 * from the state directory, else from seqctl login (api/core/context.h); "" if there is none. */
int cli_token(const struct cli *c, const char *url, char *out, size_t size, struct err *e);
/* Returns the file of --ca, else SEQD_CA; NULL: neither is given. */
const char *cli_ca(const struct cli *c);

/* Prints a message to a person on stderr, unless -q silences it. Control characters but line
 * breaks and tabs become '?'. */
void cli_say(const struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Draws a progress line on the terminal of stderr: the next one or a message replaces it, ""
 * removes it. The caller has removed control characters. */
void cli_draw(const char *line);
/* Prints "seqctl: ..." on stderr, even with -q. Returns code. */
int cli_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reads operand i as a job, its id or its name (name.h). Returns -(exit code) after a message. */
int64_t cli_job_id(struct cli *c, int i);

#endif
