#include "tests/paper/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct {
    FILE *out;
    char dir[256];
    int n[BROKEN + 1];
} report;

static const char *const verdicts[] = {"reproduced", "different", "not reproducible here",
                                       "holds",      "compared",  "**BROKEN**"};

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
    fputs("# The papers, held against this engine\n\n"
          "Written by `make paper`. *Ours* is the planner's arithmetic, *measured* comes from runs "
          "on this machine: ranks as threads on the transport that ranks as processes use, every "
          "byte counted where it moves, every allocation counted. Ratio is ours to the claim.\n",
          report.out);
}

void report_section(const char *title, const char *text)
{
    fprintf(report.out, "\n## %s\n\n%s\n", title, text);
    printf("%s\n", title);
    fflush(stdout);
}

void report_text(const char *text)
{
    fprintf(report.out, "\n%s\n", text);
}

void report_absent(const char *what, const char *why)
{
    fprintf(report.out, "\nNot in this version: %s (%s).\n", what, why);
    printf("  absent: %s (%s)\n", what, why);
}

void report_table(void)
{
    fputs("\n| claim | source | claimed | ours | measured | ratio | verdict | why |\n"
          "|---|---|---|---|---|---|---|---|\n",
          report.out);
}

static void number(double v, const char *text)
{
    if (text)
        fprintf(report.out, " %s |", text);
    else if (v == 0)
        fputs(" - |", report.out);
    else
        fprintf(report.out, v >= 1e6 || v < 1e-3 ? " %.6g |" : " %.5g |", v);
}

void report_claim(const struct claim *c)
{
    report.n[c->verdict]++;
    fprintf(report.out, "| %s | %s |", c->what, c->source);
    number(c->claimed, c->claimed_text);
    number(c->ours, c->ours_text);
    fprintf(report.out, " %s |", *c->measured ? c->measured : "-");
    if (c->claimed > 0 && c->ours > 0)
        fprintf(report.out, " %.4f |", c->ours / c->claimed);
    else
        fputs(" - |", report.out);
    fprintf(report.out, " %s | %s |\n", verdicts[c->verdict], c->why ? c->why : "");
    if (c->verdict == BROKEN) printf("  BROKEN: %s: %s\n", c->what, c->measured);
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

int report_close(void)
{
    static const char line[] = "%d published claims reproduced, %d different, %d not reproducible "
                               "here; %d promises of our "
                               "own hold, %d broken; %d comparisons that nobody claimed";
    const int *n = report.n;
    fputs("\n## In all\n\n", report.out);
    for (int i = 0; i < 2; i++) {
        FILE *f = i ? stdout : report.out;
        fprintf(f, line, n[REPRODUCED], n[DIFFERENT], n[NOT_HERE], n[HOLDS], n[BROKEN],
                n[COMPARED]);
        fputs(i ? "\n" : ".\n", f);
    }
    fclose(report.out);
    return report.n[BROKEN];
}
