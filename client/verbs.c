/* verbs.c: lists the verbs in the order of seqctl help. */
#include "client/verbs.h"

#include <stddef.h>

static int never(struct cli *c)
{
    (void)c;
    return CLI_USAGE; /* cli_run answers help itself: it holds the list */
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
    &init_verb,        &submit_verb,   &plan_verb,    &verify_verb,     &ls_verb,
    &show_verb,        &watch_verb,    &page_verb,    &logs_verb,       &events_verb,
    &metrics_verb,     &set_verb,      &cancel_verb,  &suspend_verb,    &resume_verb,
    &continue_verb,    &retry_verb,    &restart_verb, &explain_verb,    &artifacts_verb,
    &checkpoints_verb, &pull_verb,     &push_verb,    &uploads_verb,    &data_verb,
    &rm_verb,          &removals_verb, &prune_verb,   &usage_verb,      &model_verb,
    &nodes_verb,       &login_verb,    &logout_verb,  &contexts_verb,   &whoami_verb,
    &tokens_verb,      &audit_verb,    &backup_verb,  &completion_verb, &version_verb,
    &help_verb_row,    NULL,
};
