/* plan.c: the verb plan, which prints the answer of POST /v1/plan: the memory, the communication,
 * and the options that were compared. */
#include "client/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "client/api.h"
#include "client/spec.h"
#include "client/text.h"
#include "client/verbs.h"

static void print_memory(const struct jv *p)
{
    char size[TEXT_SHORT], clean[64];
    const struct jv *by_class = jv_get(p, "memory.by_class");
    printf("\nmemory per rank  %s\n", text_bytes(size, jv_int(p, "memory.total_bytes", 0)));
    if (jv_int(p, "memory.host_bytes", 0))
        printf("  and of the host %s\n", text_bytes(size, jv_int(p, "memory.host_bytes", 0)));
    if (jv_int(p, "memory.disk_bytes", 0))
        printf("  and of the disk %s\n", text_bytes(size, jv_int(p, "memory.disk_bytes", 0)));
    for (size_t i = 0; i < jv_len(by_class); i++) {
        const char *name = "";
        const struct jv *v = jv_at(by_class, i, &name);
        printf("  %-14s %12s\n", text_safe(clean, sizeof clean, name),
               text_bytes(size, jv_int(v, NULL, 0)));
    }
    if (jv_int(p, "memory.reference_bytes", 0))
        printf("  of rank 0 alone, for the comparison: %s\n",
               text_bytes(size, jv_int(p, "memory.reference_bytes", 0)));
}

static void print_comm(const struct jv *p)
{
    char sent[TEXT_SHORT], got[TEXT_SHORT], n[TEXT_SHORT], clean[64];
    const struct jv *comm = jv_get(p, "comm");
    if (!jv_len(comm)) {
        puts("\nnothing is sent: one rank");
        return;
    }
    puts("\nsent per rank and step      out          in    messages");
    for (size_t i = 0; i < jv_len(comm); i++) {
        const char *name = "";
        const struct jv *v = jv_at(comm, i, &name);
        printf("  %-14s %14s %11s %11s\n", text_safe(clean, sizeof clean, name),
               text_bytes(sent, jv_int(v, "bytes_sent", 0)),
               text_bytes(got, jv_int(v, "bytes_received", 0)),
               text_count(n, jv_num(v, "messages_sent", 0)));
    }
}

enum { ROWS_SHOWN = 8 };

/* Adds one of the options that were compared. */
static void add_option(struct table *t, const struct jv *o)
{
    char text[TEXT_SHORT];
    char name[96];
    const char *way = jv_str(o, "exchange", jv_str(o, "form", ""));
    const int64_t u = jv_int(o, "ulysses", 0);
    snprintf(text, sizeof text, "in groups of %lld", (long long)u);
    if (u) way = text;
    snprintf(name, sizeof name, "%.32s%s%.24s, %.32s", jv_str(o, "strategy", "?"), *way ? " " : "",
             way, jv_str(o, "layout", "?"));
    text_table_add(t, name);
    text_table_add(t, text_count(text, jv_num(o, "sp", 0)));
    text_table_add(t, text_count(text, jv_num(o, "dp", 0)));
    text_table_add(t, text_count(text, jv_num(o, "pp", 1)));
    text_table_add(t, text_count(text, jv_num(o, "tp", 1)));
    text_table_add(t,
                   jv_get(o, "zero_group") ? text_count(text, jv_num(o, "zero_group", 0)) : "all");
    const int64_t piece = jv_int(o, "mlp_chunk_tokens", 0);
    int n = snprintf(text, sizeof text, "%.16s", jv_str(o, "recompute", "?"));
    if (piece) n += snprintf(text + n, sizeof text - (size_t)n, ", MLP %lld", (long long)piece);
    if (jv_get(o, "offload")) snprintf(text + n, sizeof text - (size_t)n, ", offload");
    text_table_add(t, text);
    const bool counted = jv_int(o, "bytes", 0) > 0;
    text_table_add(t, !counted ? "-" : jv_bool(o, "fits", false) ? "yes" : "no");
    text_table_add(t, counted ? text_bytes(text, jv_int(o, "bytes", 0)) : "-");
    text_table_add(t, text_bytes(text, jv_int(o, "comm_bytes", 0)));
    text_table_add(t, text_count(text, jv_num(o, "comm_messages", 0)));
    const double s = jv_num(o, "step_s", -1);
    snprintf(text, sizeof text, s < 0 ? "-" : s < 1 ? "%.3g ms" : "%.3g s", s < 1 ? s * 1e3 : s);
    text_table_add(t, text);
    text_table_add(t, jv_bool(o, "chosen", false) ? "<- chosen"
                      : jv_get(o, "note")         ? "compared"
                                                  : "");
}

/* Tells whether a comes before b. The chosen option is first, and the remaining options are
 * ordered by the time of a step. */
static bool sooner(const struct jv *a, const struct jv *b)
{
    const bool chosen = jv_bool(a, "chosen", false);
    const double x = jv_num(a, "step_s", INFINITY), y = jv_num(b, "step_s", INFINITY);
    if (chosen != jv_bool(b, "chosen", false)) return chosen;
    return x < y;
}

/* Writes the first n options, in the order of `sooner`, to out. Returns their number. */
static int soonest(const struct jv *list, const struct jv **out, int n)
{
    int k = 0;
    for (size_t i = 0; i < jv_len(list); i++) {
        const struct jv *o = jv_at(list, i, NULL);
        int at = k < n ? k++ : n;
        for (; at > 0 && sooner(o, out[at - 1]); at--)
            if (at < n) out[at] = out[at - 1];
        if (at < n) out[at] = o;
    }
    return k;
}

/* Prints the best ROWS_SHOWN of the options that were compared, or all of them with -o wide. */
static void print_weighed(const struct cli *c, const struct jv *p)
{
    static const char *const head[] = {"STRATEGY",  "SP",        "DP",   "PP",       "TP",
                                       "ZERO OVER", "RECOMPUTE", "FITS", "PER RANK", "MOVES",
                                       "MESSAGES",  "STEP",      "",     NULL};
    const struct jv *list = jv_get(p, "weighed"), *shown[ROWS_SHOWN];
    const size_t n = jv_len(list);
    struct table t;
    if (!n) return;
    text_table_init(&t, head);
    const int few = soonest(list, shown, ROWS_SHOWN);
    for (size_t i = 0; i < n && c->output == OUT_WIDE; i++) add_option(&t, jv_at(list, i, NULL));
    for (int i = 0; i < few && c->output != OUT_WIDE; i++) add_option(&t, shown[i]);
    puts("");
    text_table_print(&t, stdout);
    if (n > ROWS_SHOWN && c->output != OUT_WIDE) printf("  %zu more: -o wide\n", n - ROWS_SHOWN);
}

static void print_outlook(const struct cli *c, const struct jv *p)
{
    char a[TEXT_SHORT], b[TEXT_SHORT], clean[512];
    const struct jv *t = jv_get(p, "estimate"), *limits = jv_get(p, "limits");
    print_weighed(c, p);
    if (*jv_str(p, "choice", ""))
        printf("  %s\n", text_safe(clean, sizeof clean, jv_str(p, "choice", "")));
    if (t) {
        const double offload_s = jv_num(t, "offload_s", 0);
        printf("\nestimated step    %.3g s: %.3g s computing, %.3g s exchanging",
               jv_num(t, "step_s", 0), jv_num(t, "compute_s", 0), jv_num(t, "exchange_s", 0));
        if (offload_s > 0) printf(", %.3g s offloading", offload_s);
        printf(", of which %.3g s hidden\n", jv_num(t, "hidden_s", 0));
        printf("  %s tokens/s", text_count(a, jv_num(t, "tokens_s", 0)));
        if (jv_num(t, "times_one_rank", 0) > 0)
            printf(", %.3g times one rank", jv_num(t, "times_one_rank", 0));
        printf("; by rates that were %s\n",
               text_safe(clean, sizeof clean, jv_str(p, "machine.source", "given")));
    }
    if (limits && jv_get(limits, "max_frames"))
        printf("longest video     %s frames of this size (%s with all ranks in one ring)\n",
               text_count(a, jv_num(limits, "max_frames", 0)),
               text_count(b, jv_num(limits, "max_frames_one_ring", 0)));
    else if (limits)
        printf(
            "longest sequence  %s tokens (%s with all ranks in one ring), or %s at once of these\n",
            text_count(a, jv_num(limits, "max_seq_len", 0)),
            text_count(b, jv_num(limits, "max_seq_len_one_ring", 0)),
            text_count(clean, jv_num(limits, "max_batch", 0)));
    const struct jv *warnings = jv_get(p, "warnings");
    for (size_t i = 0; i < jv_len(warnings); i++)
        printf("warning: %s\n",
               text_safe(clean, sizeof clean, jv_str(jv_at(warnings, i, NULL), NULL, "")));
}

static void print_plan(const struct cli *c, const struct jv *p)
{
    char number[TEXT_SHORT], a[64], b[64], why[512];
    const bool runs = jv_get(p, "seq_len"); /* a merge runs no model */
    printf("%s: %lld ranks x %lld threads", text_safe(why, sizeof why, jv_str(p, "kind", "job")),
           (long long)jv_int(p, "ranks", 0), (long long)jv_int(p, "threads", 0));
    if (runs)
        printf(", strategy %s, layout %s", text_safe(a, sizeof a, jv_str(p, "strategy", "?")),
               text_safe(b, sizeof b, jv_str(p, "layout", "?")));
    printf("\n  %s\n", text_safe(why, sizeof why, jv_str(p, "reason", "")));
    printf("  %s parameters", text_count(number, jv_num(p, "parameters", 0)));
    if (!runs) {
        printf(", %.3g GFLOP\n", jv_num(p, "flops", 0) / 1e9);
        print_memory(p);
        return;
    }
    printf(", %s tokens a sequence", text_count(number, jv_num(p, "seq_len", 0)));
    if (jv_get(p, "windows")) printf(" in %s windows", text_count(number, jv_num(p, "windows", 0)));
    printf(", %s rows a rank, %.3g GFLOP a step\n",
           text_count(number, jv_num(p, "rows_per_rank", 0)), jv_num(p, "flops", 0) / 1e9);
    print_memory(p);
    print_comm(p);
    print_outlook(c, p);
}

int plan_spec(struct cli *c, const struct jv *spec)
{
    struct jv *plan = NULL;
    char *body = jv_dump(spec, JV_COMPACT);
    int rc = api_post(c, "/v1/plan", body, NULL, &plan);
    free(body);
    if (!rc && c->opt.field)
        rc = api_print_field(c, plan);
    else if (!rc && !api_print(c, plan)) {
        const struct jv *inner = jv_get(plan, "plan");
        print_plan(c, inner ? inner : plan);
    }
    jv_free(plan);
    return rc;
}

static int plan_run(struct cli *c)
{
    struct jv *spec = NULL;
    int rc = spec_load(c, NULL, &spec);
    if (!rc) rc = plan_spec(c, spec);
    jv_free(spec);
    return rc;
}

const struct verb verb_plan = {
    .name = "plan",
    .operands = "FILE|-",
    .summary = "memory and bytes of a job, before it runs",
    .min_args = 1,
    .max_args = 1,
    .run = plan_run,
    .options = OPT_NAME | OPT_SET | OPT_UNSET | OPT_FIELD,
    .help = "Answers what a job would hold and send, and why that strategy and layout. Nothing is\n"
            "started. A job that cannot fit is refused with numbers, exit code 1. With "
            "\"hardware\" in\n"
            "the spec: for machines that are not here.\n\n"
            "  --set PATH=VALUE  change a field of the spec; may be repeated\n"
            "  --unset PATH      remove one; may be repeated\n"
            "  --field PATH      only this member of the plan\n\n"
            "  seqctl plan client/examples/train-tiny.json --set resources.ranks=4\n"
            "  seqctl plan client/examples/plan-cluster.json --set hardware.devices=16",
};
