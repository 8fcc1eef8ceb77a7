/* verbs.c: lists the verbs in the order of seqctl help. */
#include "client/verbs.h"

#include <stddef.h>

static int never(struct cli *c)
{
    (void)c;
    return CLI_USAGE; /* never called: cli_run has the list of verbs and answers help */
}

static const struct verb help_verb_row = {
    .name = "help",
    .operands = "[VERB]",
    .summary = "this list, or more about one verb",
    .help = "Prints the list of verbs, or what one of them does.",
    .max_args = 1,
    .run = never,
};

const struct verb *const verbs_all[] = {
    &verb_init,        &verb_submit,   &verb_plan,    &verb_verify,     &verb_ls,
    &verb_show,        &verb_watch,    &verb_page,    &verb_logs,       &verb_events,
    &verb_metrics,     &verb_set,      &verb_cancel,  &verb_suspend,    &verb_resume,
    &verb_continue,    &verb_retry,    &verb_restart, &verb_explain,    &verb_artifacts,
    &verb_checkpoints, &verb_pull,     &verb_push,    &verb_uploads,    &verb_data,
    &verb_rm,          &verb_removals, &verb_prune,   &verb_usage,      &verb_model,
    &verb_nodes,       &verb_login,    &verb_logout,  &verb_contexts,   &verb_whoami,
    &verb_tokens,      &verb_audit,    &verb_backup,  &verb_completion, &verb_version,
    &help_verb_row,    NULL,
};
