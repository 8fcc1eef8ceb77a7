/* completion.c: completion for shells. The scripts of the shells pass the words of the command
 * line to `seqctl completion words`, which finds verbs and options in the same tables as the
 * parser. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

#define JOBS "100" /* number of the newest jobs whose ids are offered */

static const char bash_text[] =
    "# Completion of seqctl for bash: source <(seqctl completion bash)\n"
    "_seqctl() {\n"
    "    local IFS=$'\\n' cur=${COMP_WORDS[COMP_CWORD]}\n"
    "    COMPREPLY=($(seqctl completion words -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null))\n"
    "    if [[ ${COMPREPLY[0]-} == :files ]]; then\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "    fi\n"
    "}\n"
    "complete -F _seqctl seqctl\n";

static const char zsh_text[] =
    "#compdef seqctl\n"
    "# Completion of seqctl for zsh: source <(seqctl completion zsh), or this as _seqctl in "
    "fpath.\n"
    "_seqctl() {\n"
    "    local -a found\n"
    "    found=(\"${(@f)$(seqctl completion words -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
    "    if [[ $found[1] == :files ]]; then _files; else compadd -- $found; fi\n"
    "}\n"
    "if [[ ${funcstack[1]-} == _seqctl ]]; then _seqctl \"$@\"; else compdef _seqctl seqctl; fi\n";

static const char fish_text[] =
    "# Completion of seqctl for fish: seqctl completion fish | source\n"
    "function __seqctl_offer\n"
    "    set -l typed (commandline -ct)\n"
    "    set -l before (commandline -opc)\n"
    "    set -l found (seqctl completion words -- $before[2..] \"$typed\" 2>/dev/null)\n"
    "    if test \"$found[1]\" = :files\n"
    "        __fish_complete_path \"$typed\"\n"
    "    else\n"
    "        string join \\n -- $found\n"
    "    end\n"
    "end\n"
    "complete -c seqctl -f -a '(__seqctl_offer)'\n";

static const struct {
    const char *name, *script;
} shells[] = {{"bash", bash_text}, {"zsh", zsh_text}, {"fish", fish_text}};
#define N_SHELLS (sizeof shells / sizeof *shells)

/* ---- candidates ------------------------------------------------------------------------------ */

static void offer(const char *candidate, const char *prefix)
{
    if (!strncmp(candidate, prefix, strlen(prefix))) puts(candidate);
}

static void offer_all(const char *const *words, const char *prefix)
{
    for (; *words; words++) offer(*words, prefix);
}

static void offer_value(const char *option, const char *prefix)
{
    static const char *const states[] = {"queued",   "starting",  "running",
                                         "stopping", "suspended", "succeeded",
                                         "failed",   "cancelled", NULL};
    static const char *const times[] = {"45s", "30m", "24h", "7d", NULL};
    if (!strcmp(option, "state"))
        offer_all(states, prefix);
    else if (!strcmp(option, "output"))
        offer_all(cli_outputs, prefix);
    else if (!strcmp(option, "timeout") || !strcmp(option, "ttl"))
        offer_all(times, prefix);
    else if (!strcmp(option, "file") || !strcmp(option, "url"))
        puts(":files");
}

static void offer_options(const struct verb *v, const char *prefix)
{
    struct cli_option_info o;
    char word[64];
    for (int i = 0; cli_option_at(i, &o); i++) {
        if (o.need && !(v && v->options & o.need)) continue;
        snprintf(word, sizeof word, "--%s", o.name);
        offer(word, prefix);
    }
}

/* Offers ids and names of jobs, or nothing if there is no server. */
static void offer_jobs(struct cli *c, const char *prefix)
{
    struct http_reply r;
    if (http_do(c->http, &(struct http_request){.method = "GET", .path = "/v1/jobs?limit=" JOBS},
                &r, NULL))
        return;
    struct jv *list = r.status == 200 ? jv_parse(r.body, r.size, NULL) : NULL;
    const struct jv *data = jv_get(list, "data");
    for (size_t i = 0; i < jv_len(data); i++) {
        char id[32], clean[128];
        const char *name = jv_str(jv_at(data, i, NULL), "name", "");
        snprintf(id, sizeof id, "%lld", (long long)jv_int(jv_at(data, i, NULL), "id", 0));
        offer(id, prefix);
        /* Offers only a name that a shell reads as one word. */
        if (*name && !strpbrk(name, " \t\n\"'\\$`*?[]{}()<>|&;#~!") &&
            !strcmp(text_safe(clean, sizeof clean, name), name))
            offer(name, prefix);
    }
    jv_free(list);
    http_reply_fini(&r);
}

/* The words that verbs accept as their first operand. */
static const struct {
    const struct verb *verb;
    const char *word[9];
} first_words[] = {
    {&verb_init, {"train", "score", "generate", "serve", "embed", "verify"}},
    {&verb_nodes,
     {"cordon", "drain", "uncordon", "undrain", "release", "revoke", "token", "tokens"}},
    {&verb_tokens, {"create", "revoke"}},
    {&verb_usage, {"users"}},
    {&verb_uploads, {"rm"}},
    {&verb_model, {"ls", "check"}},
};

/* Offers words for an operand of v that follows n operands. */
static void offer_operand(struct cli *c, const struct verb *v, int n, const char *prefix)
{
    for (size_t i = 0; i < sizeof first_words / sizeof *first_words; i++)
        if (v == first_words[i].verb && !n) {
            offer_all(first_words[i].word, prefix);
            return;
        }
    if (v == &verb_completion)
        for (size_t i = 0; i < N_SHELLS; i++) offer(shells[i].name, prefix);
    if (!strcmp(v->operands, "[VERB]"))
        for (const struct verb *const *w = c->verbs; *w; w++) offer((*w)->name, prefix);
    const bool pulls = v == &verb_pull; /* the operands are an id and then a directory */
    if ((strstr(v->operands, "ID") && !(pulls && n)) || v == &verb_chat) offer_jobs(c, prefix);
    if (pulls && !n) return;
    if (strstr(v->operands, "FILE") || strstr(v->operands, "DIR")) puts(":files");
}

/* Returns the name of the option `word` if the next word is the option's value. Otherwise returns
 * NULL. */
static const char *waiting(const char *word)
{
    static struct cli_option_info o;
    if (word[0] != '-' || !word[1]) return NULL;
    for (int i = 0; cli_option_at(i, &o); i++)
        if (o.takes_value && (word[1] == '-' ? !strcmp(o.name, word + 2)
                                             : o.letter && o.letter == word[1] && !word[2]))
            return o.name;
    return NULL;
}

/* Offers words. The arguments from arg[1] on are the words of the command line. The last of them
 * is being typed. */
static int offer_words(struct cli *c)
{
    const struct verb *v = NULL;
    int n = 0;
    const char *prefix = c->n_args > 1 ? c->arg[c->n_args - 1] : "", *option = NULL;
    for (int i = 1; i < c->n_args - 1; i++) {
        const bool value = option != NULL;
        option = value ? NULL : waiting(c->arg[i]);
        if (value || c->arg[i][0] == '-') continue;
        if (v) {
            n++;
            continue;
        }
        for (const struct verb *const *w = c->verbs; *w && !v; w++)
            if (!strcmp((*w)->name, c->arg[i])) v = *w;
        if (!v) return CLI_OK; /* an unknown verb */
    }
    if (option)
        offer_value(option, prefix);
    else if (*prefix == '-')
        offer_options(v, prefix);
    else if (v)
        offer_operand(c, v, n, prefix);
    else
        for (const struct verb *const *w = c->verbs; *w; w++) offer((*w)->name, prefix);
    return CLI_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int completion_run(struct cli *c)
{
    if (!strcmp(c->arg[0], "words")) return offer_words(c);
    for (size_t i = 0; i < N_SHELLS; i++)
        if (!strcmp(c->arg[0], shells[i].name)) return fputs(shells[i].script, stdout), CLI_OK;
    return cli_fail(CLI_USAGE, "%s: want: seqctl completion bash, zsh or fish", c->arg[0]);
}

static bool is_script(const struct cli *c)
{
    return c->n_args && strcmp(c->arg[0], "words") != 0;
}

const struct verb verb_completion = {
    .name = "completion",
    .operands = "bash|zsh|fish",
    .summary = "completion for a shell, with live job ids",
    .min_args = 1,
    .max_args = 256,
    .run = completion_run,
    .alone = is_script,
    .help = "Prints the completion of a shell: verbs, options, states, files, and ids of jobs.\n\n"
            "  source <(seqctl completion bash)\n"
            "  seqctl completion fish | source",
};
