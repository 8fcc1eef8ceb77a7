/* test_client_convert: tests which files are converted, and the names of their results. The
 * conversion itself is tested by tests/scripts/convert.sh. */
#include <stdio.h>
#include <string.h>
#include "client/convert.h"
#include "tests/lib/test.h"

static void test_names(void)
{
    static const char *const rows[][2] = {
        {"a.parquet", "a.jsonl"},
        {"d.gz/a b'\".PARQUET", "d.gz/a b'\".jsonl"},
        {"train-00000-of-00002.parquet", "train-00000-of-00002.jsonl"},
        {"a.jsonl.gz", "a.jsonl"},
        {"a.json.GZ", "a.jsonl"},
        {"c4-train.00000.json.gz", "c4-train.00000.jsonl"},
        {"a.ndjson.zst", "a.jsonl"},
        {"RC_2019-04.zst", "RC_2019-04"},
        {"a.txt.zstd", "a.txt"},
        {"a.bin.gz", "a.bin"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[FILE_PATH_SIZE];
        struct err e = {0};
        CHECK_MSG(convert_takes(rows[i][0]), "%s", rows[i][0]);
        CHECK_MSG(!convert_name(rows[i][0], name, &e), "%s: %s", rows[i][0], e.text);
        CHECK_STR(name, rows[i][1]);
        CHECK(convert_is_parquet(rows[i][0]) == (i < 3));
    }
}

static void test_refusals(void)
{
    static const char *const same[] = {"a.jsonl", "config.json", "a.tgz",     ".gz",     ".parquet",
                                       "parquet", "d.gz/README", "a.gz.part", "a.gz.001"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        CHECK_MSG(!convert_takes(same[i]), "%s", same[i]);
    static const char *const inner[][2] = {{"a.tar.gz", "a tar archive"},
                                           {"a.parquet.gz", "a Parquet file"},
                                           {"a.gz.zst", "a gzip file"},
                                           {"x/a.csv.zst", "a table of comma-separated values"}};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        char name[FILE_PATH_SIZE];
        struct err e = {0};
        CHECK(convert_takes(inner[i][0]));
        CHECK(convert_name(inner[i][0], name, &e) == -1 && e.code == ERR_INVALID);
        CHECK_MSG(strstr(e.text, inner[i][0]) && strstr(e.text, inner[i][1]), "%s", e.text);
    }
}

static void test_long_name(void)
{
    char path[FILE_PATH_SIZE], name[FILE_PATH_SIZE];
    struct err e = {0};
    memset(path, 'a', sizeof path);
    strcpy(path + sizeof path - 16, ".json.gz");
    CHECK(!convert_name(path, name, &e) && strlen(name) == strlen(path) - 2);
    memset(path, 'a', sizeof path);
    strcpy(path + sizeof path - 4, ".gz");
    CHECK(convert_name(path, name, &e) == -1 && e.code == ERR_TOO_LARGE);
}

int main(void)
{
    RUN(test_names);
    RUN(test_refusals);
    RUN(test_long_name);
    return test_done("convert");
}
