/* options.h: the options of seqw, from its command line and seqw.toml. A new option is a member of
 * struct seqw_options and a row of the table in options.c. */
#ifndef SEQD_AGENT_OPTIONS_H
#define SEQD_AGENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/option.h"
#include "api/core/rank.h"

/* Optional file, which is read only if neither --config nor --connect is given. */
#define OPTIONS_FILE "/etc/seqd/seqw.toml"

struct seqw_options {
    bool automatic, check_config, help, version;
    char config[RANK_PATH_SIZE];
    char connect[RANK_PATH_SIZE];
    char token_file[RANK_PATH_SIZE], key_file[RANK_PATH_SIZE];
    char state[RANK_PATH_SIZE], shared[RANK_PATH_SIZE];
    char name[64];
    char address[128];
    char interface[32];
    int64_t slots;
    struct option_list root, writable;
    char bin[RANK_PATH_SIZE]; /* "" means the directory of seqw */
    int64_t orphan_ms;
    int64_t end_time; /* UTC time in seconds since 1970; 0 if not known */
    char leave_margin[32], stop_grace[32];
    char keep_prepared[64];
    char log[16];
    char sandbox[16]; /* a word of sandbox_modes */
    bool no_pin;
    bool slots_given; /* whether the number of slots is set on the command line or in the file */
    int argc;         /* arguments of the command line, stored for options_reload */
    char **argv;
};

/* Reads the options. Returns 0 if seqw should run. Returns 1 if --help, --version or
 * --check-config was given and its output has been printed. Returns -1 if an option is wrong,
 * and *e has the reason. */
int options_read(struct seqw_options *o, int argc, char **argv, struct err *e);
/* Reads --leave-margin in seconds. It cannot fail once options_read has accepted the option. */
int options_margin_s(const struct seqw_options *o, int64_t *out_s, struct err *e);
int options_grace_s(const struct seqw_options *o, int64_t *out_s, struct err *e); /* --stop-grace */
/* Reads the configuration file again at SIGHUP. Adopts new values of the options that may
 * change while seqw runs, and logs changes of other options, which need a restart. If the file
 * is wrong, changes no option and returns -1. In that case *e names the place of the fault. */
int options_reload(struct seqw_options *o, struct err *e);

#endif
