/* report.c: judges each row, writes it, and counts the results for the summary. Only write_row()
 * writes rows. */
#include "tests/paper/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum result {
    REPRODUCED, /* a published claim that was counted or planned */
    AGREES,     /* an account that is within the precision of the claim */
    DIFFERENT,  /* our count, plan or account differs from the paper */
    HOLDS,      /* a promise of this engine that was counted or planned */
    NO_CLAIM,   /* a number for which none was published */
    BROKEN,     /* counted or planned, and wrong, which makes the program fail */
    RESULT_N
};
static const char *const kinds[KIND_N] = {"counted", "planned", "account", "compared"};
static const char *const results[RESULT_N] = {"reproduced", "agrees",   "different",
                                              "holds",      "no claim", "**BROKEN**"};

static struct {
    FILE *out;
    char dir[256];
    int n[KIND_N][RESULT_N], n_unmeasured;
} report;

static FILE *open_in(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", report.dir, name);
    FILE *f = fopen(path, "we");
    if (f) return f;
    perror(path);
    exit(2);
}

void report_open(const char *dir)
{
    snprintf(report.dir, sizeof report.dir, "%s", dir);
    mkdir(dir, 0777);
    report.out = open_in("REPORT.md");
    fputs(
        "# The papers, compared with this engine\n\n"
        "Written by `make paper`. Every row says what kind of number it has:\n\n"
        "- *counted*: code of the product ran on this machine, with ranks as threads on the "
        "transport that rank processes use, and its ledger or its memory was read;\n"
        "- *planned*: the planner of the product gave the number; nothing ran;\n"
        "- *account*: a formula of this report. Nothing of the product is in it, and the row "
        "names the constants that were fitted to published numbers;\n"
        "- *compared*: a count of ours beside the description of another system, which was not "
        "run.\n\n"
        "Only counted and planned rows can reproduce a claim. A row is not a claim: one claim has "
        "a row for every P, S or N at which it was tried. A count must be exact. Where a "
        "claim is rounded, the tolerance is half a unit of its last digit, or what the row "
        "says. Ratio is ours to the claim.\n",
        report.out);
}

void report_section(const char *title, const char *text)
{
    fprintf(report.out, "\n## %s\n\n%s\n", title, text);
    printf("%s\n", title);
    fflush(stdout);
}

void report_absent(const char *what, const char *why)
{
    fprintf(report.out, "\nNot in this version: %s (%s).\n", what, why);
    printf("  absent: %s (%s)\n", what, why);
}

void report_unmeasured(const char *what, const char *source, const char *claimed, const char *why)
{
    if (!report.n_unmeasured++)
        fputs("\n| claim | source | claimed | reason |\n|---|---|---|---|\n", report.out);
    fprintf(report.out, "| %s | %s | %s | %s |\n", what, source, claimed, why);
}

void report_table(void)
{
    fputs("\n| kind | claim | source | claimed | tolerance | ours | ratio | result | note |\n"
          "|---|---|---|---|---|---|---|---|---|\n",
          report.out);
}

/* Writes a number as a cell of a table shows it. All digits of an integer are written. */
static const char *shown(double v, char text[32])
{
    const bool whole = v == floor(v) && fabs(v) < 1e15;
    snprintf(text, 32, whole ? "%.0f" : "%.5g", v);
    return text;
}

/* Writes a row. No other function writes rows. If the row is broken, `fault` describes its
 * fault. */
static void write_row(enum kind kind, enum result result, const struct row *r, const char *ours,
                      double ratio, const char *fault)
{
    const char *note = r->differs ? r->differs : r->note ? r->note : "";
    char claimed[32], tolerance[32] = "-";
    const char *c = r->claimed_text ? r->claimed_text
                    : r->claimed    ? shown(r->claimed, claimed)
                                    : "-";
    report.n[kind][result]++;
    fprintf(report.out, "| %s | %s | %s | %s%s |", kinds[kind], r->what,
            r->source ? r->source : "this engine", r->above ? "more than " : "", c);
    if (r->tolerance > 0) snprintf(tolerance, sizeof tolerance, "%.2g", r->tolerance);
    fprintf(report.out, " %s | %s |", tolerance, ours);
    if (ratio > 0 && !r->differs) /* if differs is set, `claimed` is not the paper's number */
        fprintf(report.out, " %.4f |", ratio);
    else
        fputs(" - |", report.out);
    fprintf(report.out, " %s | %s%s%s |\n", results[result], note, *note && fault ? "; " : "",
            fault ? fault : "");
    if (result == BROKEN) printf("  BROKEN: %s: %s %s\n", r->what, ours, fault ? fault : "");
}

/* Decides the result for a number that the product gave. */
static enum result judged(const struct row *r, bool ok)
{
    if (!ok) return BROKEN;
    return !r->source ? HOLDS : r->differs ? DIFFERENT : REPRODUCED;
}

void report_bytes(const struct row *r, const struct evidence *e,
                  int64_t want[EVIDENCE_RANKS][EVIDENCE_PHASES])
{
    char ours[96], fault[160] = "";
    const int P = evidence_n_ranks(e);
    int64_t sum = 0, claimed = 0;
    if (P < 1) abort(); /* the evidence is not that of a ledger */
    if (evidence_fault(e)) snprintf(fault, sizeof fault, "%s", evidence_fault(e));
    for (int i = 0; i < P; i++)
        for (int k = 0; k < EVIDENCE_PHASES; k++) {
            const int64_t sent = evidence_sent(e, i, k);
            sum += sent, claimed += want[i][k];
            if (sent != want[i][k] && !*fault)
                snprintf(fault, sizeof fault, "rank %d sent %lld bytes %s, not %lld", i,
                         (long long)sent, k ? "backward" : "forward", (long long)want[i][k]);
        }
    snprintf(ours, sizeof ours, "%lld + %lld bytes", (long long)evidence_sent(e, 0, 0),
             (long long)evidence_sent(e, 0, 1));
    write_row(evidence_kind(e), judged(r, !*fault), r, ours,
              claimed ? (double)sum / (double)claimed : 0, *fault ? fault : NULL);
}

void report_number(const struct row *r, struct evidence *const e[], int n,
                   double (*of)(const int64_t v[], int n))
{
    int64_t v[16];
    char text[32];
    const char *fault = NULL;
    if (n < 1 || n > 16) abort();
    for (int i = 0; i < n; i++) {
        if (evidence_kind(e[i]) != evidence_kind(e[0])) abort();
        v[i] = evidence_value(e[i]);
        if (evidence_fault(e[i])) fault = evidence_fault(e[i]);
    }
    const double ours = of ? of(v, n) : (double)v[0];
    const bool holds = r->most ? ours <= r->claimed : fabs(ours - r->claimed) <= r->tolerance;
    const bool ok = !fault && holds;
    write_row(evidence_kind(e[0]), judged(r, ok), r, shown(ours, text),
              r->claimed > 0 ? ours / r->claimed : 0,
              ok || fault ? fault
              : r->most   ? "more than that"
                          : "not within the tolerance");
}

void report_account(const struct row *r, double ours, const char *fitted)
{
    char note[256], text[32];
    const bool agrees = r->above ? ours > r->claimed : fabs(ours - r->claimed) <= r->tolerance;
    struct row row = *r;
    snprintf(note, sizeof note, "fitted: %s%s%s", fitted ? fitted : "nothing", r->note ? "; " : "",
             r->note ? r->note : "");
    row.note = note;
    write_row(ACCOUNT,
              r->claimed == 0 ? NO_CLAIM
              : agrees        ? AGREES
                              : DIFFERENT,
              &row, shown(ours, text), r->claimed > 0 && !r->above ? ours / r->claimed : 0, NULL);
}

void report_compared(const struct row *r, const struct evidence *e, int64_t theirs)
{
    char text[32], ours[96];
    const bool ok = !evidence_fault(e) && theirs > 0;
    const double ratio = theirs > 0 ? (double)evidence_value(e) / (double)theirs : 0;
    snprintf(ours, sizeof ours, "%lld of %lld bytes = %s", (long long)evidence_value(e),
             (long long)theirs, shown(ratio, text));
    write_row(COMPARED, ok ? NO_CLAIM : BROKEN, r, ours, 0, evidence_fault(e));
}

void report_picture(const char *name, const char *caption)
{
    fprintf(report.out, "\n![%s](%s.png)\n", caption, name);
}

FILE *report_data(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s.dat", name);
    return open_in(file);
}

static int total(enum kind k)
{
    int sum = 0;
    for (int i = 0; i < RESULT_N; i++) sum += report.n[k][i];
    return sum;
}

static void summary(FILE *f, const char *bullet)
{
    for (int k = COUNTED; k <= PLANNED; k++) {
        const int *n = report.n[k];
        fprintf(f,
                "%s%s: %d rows; %d reproduce a published claim, %d differ from one, %d hold a "
                "promise of this engine, %d broken\n",
                bullet, kinds[k], total((enum kind)k), n[REPRODUCED], n[DIFFERENT], n[HOLDS],
                n[BROKEN]);
    }
    const int *a = report.n[ACCOUNT];
    fprintf(f,
            "%s%s: %d rows; %d agree with the published number within its precision, %d differ, %d "
            "have no published number; none counts as reproduced\n",
            bullet, kinds[ACCOUNT], total(ACCOUNT), a[AGREES], a[DIFFERENT], a[NO_CLAIM]);
    fprintf(f, "%s%s: %d rows, %d broken; none counts as reproduced\n", bullet, kinds[COMPARED],
            total(COMPARED), report.n[COMPARED][BROKEN]);
    fprintf(f, "%sneither run nor accounted for: %d published claims\n", bullet,
            report.n_unmeasured);
}

int report_close(void)
{
    int broken = 0;
    fputs("\n## In all\n\n", report.out);
    summary(report.out, "- ");
    summary(stdout, "");
    fclose(report.out);
    for (int k = 0; k < KIND_N; k++) broken += report.n[k][BROKEN];
    return broken;
}
