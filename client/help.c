/* help.c: prints the help of seqctl and of each verb, and finds the verb or option that is nearest
 * to a misspelt word. */
#include "client/help.h"

#include <string.h>
#include "api/core/nearest.h"
#include "client/text.h"

const char *help_nearest(const char *word, const char *const *words, int n)
{
    const char *best = NULL;
    const int most = nearest_most(word), limit = most < 2 ? most : 2;
    int best_distance = limit + 1;
    for (int i = 0; i < n; i++) {
        int d = nearest_distance(word, words[i]);
        size_t len = strlen(word);
        if (len >= 2 && !strncmp(word, words[i], len))
            d = 0; /* the word is the beginning of words[i], so it matches */
        if (d < best_distance) best_distance = d, best = words[i];
    }
    return best;
}

void help_all(FILE *out, const struct verb *const *verbs)
{
    fputs("seqctl talks to seqd: submit, plan, verify and watch jobs on long sequences.\n\n"
          "usage: seqctl VERB [operands] [options]\n\n",
          out);
    for (; *verbs; verbs++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", (*verbs)->name, (*verbs)->operands);
        fprintf(out, "  %-30s %s\n", left, (*verbs)->summary);
    }
    fputs("\nOptions of every verb\n"
          "  --url URL|DIR      where seqd answers, https://HOST:PORT or unix:PATH, or its\n"
          "                     state directory (default: SEQD_URL, else the server of the last\n"
          "                     login, else the socket /run/seqd/seqd.sock where there is one,\n"
          "                     else http://127.0.0.1:7433)\n"
          "  --ca FILE          whose certificates are trusted (default: SEQD_CA, else of seqctl\n"
          "                     login, else the system's)\n"
          "  --token-file FILE  the token for it, - for stdin (default: SEQD_TOKEN_FILE, else of\n"
          "                     the state directory, else of seqctl login)\n"
          "  -o FORMAT          table, wide, json, jsonl, yaml, csv or name\n"
          "  -q, --quiet        no messages, only data and errors\n"
          "  --no-color         no colours (also NO_COLOR=1, or TERM=dumb)\n"
          "  -h, --help         help on the verb;  --version\n\n"
          "ID is a job's id or its name. A name means the live job of that name, else the newest.\n"
          "Data goes to stdout, messages to stderr.\n\n"
          "Exit codes\n"
          "    0  ok; with --wait, watch, verify: the job succeeded\n"
          "    1  error          2  usage           3  not found      4  conflict\n"
          "   10  job failed    11  job cancelled   124  --timeout passed\n"
          "  130  detached with Ctrl-C: the job runs on\n\n"
          "Example\n"
          "  seqd --dev --state /tmp/seqd &\n"
          "  seqctl plan client/examples/train-tiny.json\n"
          "  seqctl submit client/examples/train-tiny.json --wait\n\n"
          "`seqctl help VERB` says more about one verb.\n",
          out);
}

void help_operand(const struct verb *v, int i, char *out, size_t size)
{
    const char *at = v->operands;
    if (strstr(at, " | ")) {
        snprintf(out, size, "%s", at);
        return;
    }
    while (i-- > 0 && strchr(at, ' ')) at = strchr(at, ' ') + 1;
    int n = (int)strcspn(at, " ");
    if (n > 3 && !strncmp(at + n - 3, "...", 3)) n -= 3;
    snprintf(out, size, "%.*s", n, at);
}

void help_verb(FILE *out, const struct verb *v)
{
    fprintf(out, "usage: seqctl %s%s%s%s\n\n%s\n", v->name, *v->operands ? " " : "", v->operands,
            v->options ? " [options]" : "", v->help);
}
