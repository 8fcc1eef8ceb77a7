/* container.c: the table of containers, and the list of suffixes of text files. A row of the table
 * has the suffixes, the first bytes and the command that converts the container. */
#include "api/core/container.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LINES "orient='records', lines=True)\""

/* clang-format off */
static const struct container containers[] = {
    {"a Parquet file", ".parquet", "PAR1", 4, 0, "PUSH"},
    {"an Arrow file", ".arrow .feather", "ARROW1", 6, 0, "python3 -c \"import pandas; pandas.read_feather('FILE').to_json('FILE.jsonl', " LINES},
    {"an Arrow stream", "", "\xff\xff\xff\xff", 4, 0, "python3 -c \"import datasets; datasets.Dataset.from_file('FILE').to_json('FILE.jsonl')\""},
    {"a gzip file", ".gz", "\x1f\x8b", 2, 0, "gunzip FILE, or PUSH"},
    {"a compressed tar archive", ".tgz", "\x1f\x8b", 2, 0, "tar -xzf FILE"},
    {"a Zstandard file", ".zst .zstd", "\x28\xb5\x2f\xfd", 4, 0, "zstd -d FILE, or PUSH"},
    {"a bzip2 file", ".bz2", "BZh", 3, 0, "bunzip2 FILE"},
    {"an xz file", ".xz", "\xfd" "7zXZ", 5, 0, "unxz FILE"},
    {"an LZ4 file", ".lz4", "\x04\x22\x4d\x18", 4, 0, "lz4 -d FILE"},
    {"a spreadsheet", ".xlsx .xls .ods", NULL, 0, 0, "python3 -c \"import pandas; pandas.read_excel('FILE').to_json('FILE.jsonl', " LINES},
    {"a document of a word processor", ".docx .doc .odt .rtf .epub", NULL, 0, 0, "pandoc FILE -t plain -o FILE.txt"},
    {"a file of PyTorch", ".pt .pth .ckpt", NULL, 0, 0, "python3 -c \"import torch, numpy; numpy.save('FILE.npy', torch.load('FILE').numpy())\""},
    {"a ZIP archive", ".zip .npz", "PK\3\4", 4, 0, "unzip FILE"},
    {"a 7z archive", ".7z", "7z\xbc\xaf\x27\x1c", 6, 0, "7z x FILE"},
    {"a tar archive", ".tar", "ustar", 5, 257, "tar -xf FILE"},
    {"a PDF document", ".pdf", "%PDF-", 5, 0, "pdftotext FILE FILE.txt"},
    {"a JSON document", ".json", NULL, 0, 0, "jq -c '.[]' FILE > FILE.jsonl"},
    {"a notebook", ".ipynb", NULL, 0, 0, "jupyter nbconvert --to markdown FILE"},
    {"a table of comma-separated values", ".csv", NULL, 0, 0, "python3 -c \"import pandas; pandas.read_csv('FILE').to_json('FILE.jsonl', " LINES},
    {"a table of tab-separated values", ".tsv", NULL, 0, 0, "python3 -c \"import pandas; pandas.read_csv('FILE', sep='\\t').to_json('FILE.jsonl', " LINES},
    {"an HDF5 file", ".h5 .hdf5", "\x89HDF\r\n", 6, 0, "python3 -c \"import h5py, numpy; numpy.save('FILE.npy', h5py.File('FILE')['NAME'][:])\""},
    {"a pickle", ".pkl .pickle", NULL, 0, 0, "python3 -c \"import pandas; pandas.read_pickle('FILE').to_json('FILE.jsonl', " LINES},
    {"a SQLite database", ".sqlite .db", "SQLite format 3", 15, 0, "sqlite3 -json FILE 'SELECT ...' | jq -c '.[]' > FILE.jsonl"},
    {"a safetensors file", ".safetensors", NULL, 0, 0, "python3 -c \"import numpy, safetensors.numpy as s; numpy.save('FILE.npy', s.load_file('FILE')['NAME'])\""},
    {"a TFRecord file", ".tfrecord .tfrecords", NULL, 0, 0, "python3 -c \"import tensorflow as t; [print(r) for r in t.data.TFRecordDataset('FILE')]\""},
    {"an ELF program", "", "\x7f" "ELF", 4, 0, "strings FILE > FILE.txt"},
    {"text in UTF-16", "", "\xff\xfe", 2, 0, "iconv -f UTF-16 -t UTF-8 FILE > FILE.txt"},
    {"text in UTF-16", "", "\xfe\xff", 2, 0, "iconv -f UTF-16 -t UTF-8 FILE > FILE.txt"},
    {"JSON in UTF-16", "", "{\0", 2, 0, "iconv -f UTF-16LE -t UTF-8 FILE > FILE.jsonl"},
    {"JSON in UTF-16", "", "\0{", 2, 0, "iconv -f UTF-16BE -t UTF-8 FILE > FILE.jsonl"},
};

/* Suffixes of prose, markup, source code and genome sequences. */
static const char texts[] =
    " .txt .text .md .markdown .mdx .rst .adoc .org .wiki .tex .bib .log .raw .tokens .srt .vtt .po .eml .mbox"
    " .html .htm .xhtml .xml .svg .css .scss .less .yaml .yml .toml .ini .cfg .conf .env .properties"
    " .c .h .cc .cpp .cxx .hh .hpp .hxx .inl .cu .cuh .cl .m .mm .py .pyx .pyi .js .mjs .cjs .jsx .ts .tsx .vue"
    " .java .kt .kts .scala .groovy .gradle .go .rs .rb .php .pl .pm .t .lua .tcl .sh .bash .zsh .fish .ps1 .bat .awk"
    " .sed .sql .r .jl .hs .lhs .ml .mli .fs .fsx .cs .vb .swift .dart .zig .nim .d .ex .exs .erl .hrl .clj .cljs"
    " .el .lisp .scm .rkt .vim .f .f77 .f90 .f95 .for .pas .ada .adb .ads .cob .asm .s .v .sv .vhd .vhdl .proto"
    " .thrift .graphql .cmake .mk .mak .am .ac .m4 .in .dockerfile .nix .tf .hcl .jinja .j2 .tmpl .diff .patch"
    " .lean .agda .coq .thy .y .l .g4 .ebnf .abc .ly .pgn .fen .smi .smiles"
    " .fa .fasta .fna .faa .ffn .fas .fastq .fq .gb .gbk .gff .gtf .bed .vcf .pdb .sam .aln .sto"
    " .en .de .fr .es .it .nl .ru .zh .ja .ko .ro .fi .tr .ar .hi ";
/* clang-format on */

const char *container_suffix(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    if (!dot || dot == name || !dot[1 + strspn(dot + 1, "0123456789")]) return "";
    return dot;
}

/* Tells whether a word is in a list, in which words are separated by spaces. */
static bool listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; n && *p; p += strcspn(p, " ")) {
        p += strspn(p, " ");
        if (!strncasecmp(p, word, n) && (p[n] == ' ' || !p[n])) return true;
    }
    return false;
}

const struct container *container_by_suffix(const char *path)
{
    const char *suffix = container_suffix(path);
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++)
        if (listed(containers[i].suffix, suffix)) return &containers[i];
    return NULL;
}

const struct container *container_by_bytes(const void *head, size_t size)
{
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        const struct container *c = &containers[i];
        if (c->magic && size >= c->offset + c->size &&
            !memcmp((const char *)head + c->offset, c->magic, c->size))
            return c;
    }
    return NULL;
}

/* Tells whether the pattern, such as ".[ch]", can only match suffixes of text files. */
static bool all_listed(const char *suffix)
{
    const size_t n = strlen(suffix);
    if (n < 4 || suffix[1] != '[' || suffix[n - 1] != ']') return false;
    for (size_t i = 2; i < n - 1; i++)
        if (!listed(texts, (char[]){'.', suffix[i], 0})) return false;
    return true;
}

bool container_is_text(const char *path)
{
    const char *suffix = container_suffix(path), *slash = strrchr(path, '/');
    if (!*suffix) return !strpbrk(slash ? slash + 1 : path, "*?[");
    return listed(texts, suffix) || all_listed(suffix);
}

static bool of_upload(const char *file)
{
    return !strncmp(file, "upload:", 7);
}

/* Shortens the name of a file that has no room in a sentence twice. A command cannot name a file of
 * an upload. */
static const char *short_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    if (of_upload(file)) return "FILE";
    return strlen(file) < 60 ? file : slash && strlen(slash) < 60 ? slash + 1 : "FILE";
}

/* Writes the command that sends the file, or the directory of files that match a pattern. A file of
 * an upload is sent again from where the user has it. */
static void push_line(const char *file, char *out, size_t size)
{
    const size_t plain = strcspn(file, "*?[");
    const bool upload = of_upload(file);
    const char *then = file[plain] ? "paths then begin with upload:NAME/"
                                   : "path then is upload:NAME/FILE";
    char dir[60] = ".";
    size_t n = plain;
    while (n && file[n - 1] != '/') n--;
    if (n > 1) n--; /* the slash, unless it is the root */
    if (n >= sizeof dir) snprintf(dir, sizeof dir, "DIR");
    if (n && n < sizeof dir) snprintf(dir, sizeof dir, "%.*s", (int)n, file);
    if (upload) snprintf(dir, sizeof dir, "DIR");
    snprintf(out, size, "seqctl push --convert %s%s, the %s", file[plain] ? dir : short_of(file),
             upload ? " on your machine" : "", then);
}

/* Writes the command with the file's name in place of FILE, and the line of seqctl in place of
 * PUSH. */
static void fill(const char *convert, const char *file, char *out, size_t size)
{
    char push[160];
    size_t n = 0;
    push_line(file, push, sizeof push);
    *out = 0;
    while (*convert && n + 1 < size) {
        const char *at = strstr(convert, "FILE"), *line = strstr(convert, "PUSH");
        const bool pushed = line && (!at || line < at);
        if (pushed) at = line;
        const size_t k = at ? (size_t)(at - convert) : strlen(convert);
        n += (size_t)snprintf(out + n, size - n, "%.*s%s", (int)k, convert,
                              pushed ? push
                              : at   ? short_of(file)
                                     : "");
        convert += k + (at ? 4 : 0);
    }
}

int container_refuse(const struct container *c, const char *field, const char *file,
                     const char *instead, struct err *e)
{
    char line[320], named[80], first[112] = "";
    const char *known = file;
    /* the commands that unpack a file, and push --convert, tell its format by its suffix */
    if (strstr(c->convert, "PUSH") && !listed(c->suffix, container_suffix(file))) {
        snprintf(named, sizeof named, "%.60s%.*s", short_of(file), (int)strcspn(c->suffix, " "),
                 c->suffix);
        snprintf(first, sizeof first, "name it %s, then ", named);
        known = named;
    }
    fill(c->convert, known, line, sizeof line);
    return err_field(e, ERR_INVALID, field,
                     "%s%s%.150s is %s, which is not read: convert it: %s%s%s", field,
                     *field ? ": " : "", file, c->name, first, line, instead);
}
