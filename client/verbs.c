/* verbs.c: makes the table of verbs from their list, and defines the row of help. */
#include "client/verbs.h"

#include <stddef.h>

static int never(struct cli *c)
{
    (void)c;
    /* never called: cli_run answers help itself */
    return CLI_USAGE;
}

const struct verb verb_help = {
    .name = "help",
    .operands = "[VERB]",
    .summary = "this list, or more about one verb",
    .help = "Prints the list of verbs, or what one of them does.",
    .max_args = 1,
    .run = never,
};

#define VERB_AT(name) &verb_##name,
const struct verb *const verbs_all[] = {VERBS(VERB_AT) NULL};
#undef VERB_AT
