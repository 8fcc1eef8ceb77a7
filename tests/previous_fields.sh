#!/usr/bin/env bash
# Prints the fields of the job spec of the previous version, and their words. It compiles the tables of
# the commit that tests/previous names. Run it when that file names another commit:
#   tests/previous_fields.sh >tests/previous.fields
# tests/scripts/previous.sh compares the fields of this version with them.
set -eu
cd "$(dirname "$0")/.."
read -r commit version <tests/previous
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
git archive "$commit" api | tar -x -C "$T"
cat >"$T/print.c" <<'C'
#include <stdio.h>
#include <string.h>
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/rank.h"
#include "api/wire.h"

static void print(const char *table, const struct field *f)
{
    static const char *const types[] = {[FIELD_INT] = "int",   [FIELD_INT32] = "int",
                                        [FIELD_DOUBLE] = "real", [FIELD_BOOL] = "bool",
                                        [FIELD_ENUM] = "enum", [FIELD_STRING] = "text"};
    for (; f->path; f++) {
        printf("%s %s %s ", table, f->path, types[f->type]);
        if (f->type == FIELD_STRING) printf("%s", f->text && *f->text ? f->text : "-");
        else if (f->type == FIELD_ENUM) printf("%s", f->words[(int)f->fallback]);
        else printf("%.17g", f->fallback);
        for (int i = 0; f->type == FIELD_ENUM && f->words[i]; i++)
            printf("%s%s", i ? "," : " ", f->words[i]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    printf("version %s commit %s wire %u rank %u\n", argv[2], argv[1], WIRE_ABI, RANK_ABI);
    print("spec", spec_fields);
    print("source", source_fields);
    print("stage", stage_fields);
    return 0;
}
C
nearest=
[ -f "$T/api/core/nearest.c" ] && nearest=$T/api/core/nearest.c
"${CC:-cc}" -std=gnu11 -I"$T" -o "$T/print" "$T/print.c" "$T/api/core/spec.c" $nearest
"$T/print" "$commit" "$version"
