/* test_container: tests files that are text, files that are containers of other programs, and
 * paths that do not name a file. */
#include <string.h>
#include "api/core/container.h"
#include "api/core/remote.h"
#include "tests/lib/test.h"

static void test_suffixes(void)
{
    static const char *const texts[] = {"a.txt",     "b/*.C",   "/x/c.py", "README", "a.b/corpus",
                                        "part.0001", ".hidden", "x.fasta", "*.[ch]", "up:x.md"};
    static const char *const none[] = {"a.dat", "data/*", "x*", "a.[ch", "a.[qh]", "x.bin.part"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK_MSG(container_is_text(texts[i]) && !container_by_suffix(texts[i]), "%s", texts[i]);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK_MSG(!container_is_text(none[i]) && !container_by_suffix(none[i]), "%s", none[i]);
    CHECK_STR(container_suffix("a.d/b.JSONL"), ".JSONL");
    CHECK_STR(container_suffix("a.d/b"), "");
    CHECK_STR(container_suffix("b."), "");
}

static void test_containers(void)
{
    static const char *const rows[][2] = {
        {"a.parquet", "seqctl push --convert a.parquet"},
        {"/d/a.parquet", "convert it: seqctl push --convert /d/a.parquet, "
                         "the path then is upload:NAME/FILE"},
        {"shards/*.parquet", "seqctl push --convert shards, the "
                             "paths then begin with upload:NAME/"},
        {"d/s*/x.parquet", "seqctl push --convert d, the paths"},
        {"/*.parquet", "seqctl push --convert /, the paths"},
        {"*.parquet", "seqctl push --convert ., the paths"},
        {"upload:n/a.parquet", "seqctl push --convert FILE on your "
                               "machine, the path then is upload:NAME/FILE"},
        {"upload:n/a.jsonl.gz", "convert it: gunzip FILE, or seqctl push --convert FILE on your "},
        {"upload:n/a.zip", "convert it: unzip FILE"},
        {"upload:n/*.parquet", "seqctl push --convert DIR on your "},
        {"a.jsonl.gz", "gunzip a.jsonl.gz, or seqctl push --convert "
                       "a.jsonl.gz, the path then is upload:NAME/FILE"},
        {"a.jsonl.zst", "zstd -d a.jsonl.zst, or seqctl push --con"},
        {"a.tgz", "tar -xzf a.tgz"},
        {"d/a.json", "jq -c '.[]' d/a.json > d/a.json.jsonl"},
        {"A.CSV", "pandas.read_csv('A.CSV')"},
        {"a.arrow", "pandas.read_feather"},
        {"a.pdf", "pdftotext a.pdf a.pdf.txt"},
        {"*.tsv", "read_csv('*.tsv', sep="},
        {"a.docx", "pandoc"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        const struct container *c = container_by_suffix(rows[i][0]);
        CHECK_MSG(c && !container_is_text(rows[i][0]), "%s", rows[i][0]);
        if (!c) continue;
        CHECK(container_refuse(c, "data.train.0.path", rows[i][0], "", &e) == -1);
        CHECK(e.code == ERR_INVALID && strlen(e.text) < sizeof e.text - 1);
        CHECK_STR(e.field, "data.train.0.path");
        CHECK_MSG(strstr(e.text, rows[i][1]), "%s", e.text);
    }
    char name[400];
    struct err e = {0};
    memset(name, 'a', sizeof name);
    strcpy(name + 300, ".gz"); /* the name is so long that the message has no room to contain it
                                * twice */
    CHECK(container_refuse(container_by_suffix(name), "", name, "", &e) == -1);
    CHECK(strstr(e.text, "gunzip FILE, or seqctl push --convert FILE"));
    strcpy(name + 300, "/*.zst");
    CHECK(container_refuse(container_by_suffix(name), "data.train.0.path", name, "", &e) == -1);
    CHECK(strstr(e.text, "seqctl push --convert DIR, ") && strlen(e.text) < sizeof e.text - 1);
}

/* Checks a file whose bytes are those of a container and whose suffix is not. Programs that unpack
 * it go by the suffix. */
static void test_other_suffix(void)
{
    static const char *const rows[][3] = {
        {"\x1f\x8b\x08", "/d/a.jsonl",
         "name it /d/a.jsonl.gz, then gunzip /d/a.jsonl.gz, or seqctl push --convert "
         "/d/a.jsonl.gz,"},
        {"PAR1", "a.txt", "name it a.txt.parquet, then seqctl push --convert a.txt.parquet,"},
        {"\x1f\x8b\x08", "/d/a.jsonl.gz", "convert it: gunzip /d/a.jsonl.gz, or"},
        {"PK\3\4", "a.jsonl", "convert it: unzip a.jsonl"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        const struct container *c = container_by_bytes(rows[i][0], strlen(rows[i][0]));
        CHECK(c && container_refuse(c, "", rows[i][1], "", &e) == -1);
        CHECK_MSG(strstr(e.text, rows[i][2]), "%s", e.text);
    }
}

static void test_bytes(void)
{
    static const struct {
        const char *head;
        size_t size;
        const char *name;
    } rows[] = {{"PAR1\x15\x04", 6, "Parquet"},
                {"\x1f\x8b\x08", 3, "gzip"},
                {"PK\3\4", 4, "ZIP"},
                {"%PDF-1.7", 8, "PDF"},
                {"\xff\xfe{\0", 4, "UTF-16"},
                {"\xfe\xff\0{", 4, "UTF-16"},
                {"{\0\"\0", 4, "UTF-16"},
                {"\xff\xff\xff\xff\x10", 5, "Arrow"},
                {"ARROW1\0\0", 8, "Arrow"},
                {"BZh91AY", 7, "bzip2"},
                {"\xef\xbb\xbf{\"a", 6, NULL},
                {"plain text", 10, NULL},
                {"\x1f", 1, NULL},
                {"PA", 2, NULL},
                {"", 0, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct container *c = container_by_bytes(rows[i].head, rows[i].size);
        CHECK_MSG(rows[i].name ? c && strstr(c->name, rows[i].name) : !c, "row %zu: %s", i,
                  c ? c->name : "none");
    }
    char tar[CONTAINER_HEAD] = "a/b.txt";
    memcpy(tar + 257, "ustar", 5);
    CHECK(container_by_bytes(tar, sizeof tar) && !container_by_bytes(tar, 260));
}

static void test_remote(void)
{
    static const char *const rows[][2] = {
        {"s3://b/x", "aws s3 cp --recursive s3://b/x DIR"},
        {"gs://b/x", "gcloud storage cp"},
        {"https://h/x.jsonl", "curl -LO https://h/x.jsonl"},
        {"hf://datasets/org/name/data/a.parquet",
         "hf download --repo-type dataset org/name --local-dir DIR"},
        {"hf://org/name", "hf download org/name --local-dir DIR"},
        {"https://huggingface.co/org/name/tree/main", "hf download org/name --local-dir DIR"},
        {"https://huggingface.co/datasets/org/name", "--repo-type dataset org/name --local"},
        {"zz://x", "is an address"},
        {"file:///x", "leave out file://"}};
    char hint[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        CHECK_MSG(remote_refuse(rows[i][0], "model.path", false, &e) == -1, "%s", rows[i][0]);
        CHECK_MSG(strstr(e.text, rows[i][1]), "%s", e.text);
        CHECK_STR(e.field, "model.path");
    }
    CHECK(!remote_refuse("/a/b", "f", true, NULL) && !remote_refuse("job:7", "f", true, NULL));
    CHECK(!remote_refuse("upload:a/b", "f", true, NULL) &&
          !remote_refuse("a/b://c", "f", true, NULL));
    CHECK(strstr(remote_hint("org/name-7b.1", false, hint, sizeof hint),
                 "hf download org/name-7b.1"));
    CHECK(strstr(remote_hint("org/set", true, hint, sizeof hint), "--repo-type dataset org/set"));
    CHECK(!*remote_hint("/org/name", false, hint, sizeof hint));
    CHECK(!*remote_hint("name", false, hint, sizeof hint) &&
          !*remote_hint("a/b/c", true, hint, 256));
    CHECK(!*remote_hint("a/*", true, hint, 256) && !*remote_hint("a/b.txt", true, hint, 256));
}

int main(void)
{
    RUN(test_suffixes);
    RUN(test_containers);
    RUN(test_other_suffix);
    RUN(test_bytes);
    RUN(test_remote);
    return test_done("container");
}
