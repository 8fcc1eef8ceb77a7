/* test_seqd_tar: tests ranges of a file, and the function that computes the bytes of a tar file at
 * any position. Checks every position of small files, names of all lengths, and sizes that have
 * too many octal digits for the header. The system's tar must be able to read the file. */
#include "daemon/http/range.h"
#include "daemon/http/tar.h"
#include "tests/lib/seqd.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHOLE (1 << 20)
static unsigned char whole[WHOLE];

/* Returns the byte of a file at an offset. */
static unsigned char byte_of(int file, int64_t offset)
{
    return (unsigned char)('a' + (file * 7 + offset) % 26);
}

static void copy_run(const struct tar_run *run, int64_t n, unsigned char *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = run->file < 0 ? run->bytes[i] : byte_of(run->file, run->offset + i);
}

/* Makes the complete tar file from its runs of bytes. */
static int64_t make_whole(const struct tar *t)
{
    static struct tar_run run;
    const int64_t size = tar_size(t);
    CHECK(size % TAR_BLOCK == 0 && size <= WHOLE);
    for (int64_t at = 0; at < size; at += run.size) {
        tar_at(t, at, &run);
        CHECK(run.size > 0 && run.size <= size - at);
        copy_run(&run, run.size, whole + at);
    }
    return size;
}

static void test_every_position(void)
{
    static const struct tar_file files[] = {
        {"MANIFEST.json", 1}, {"a", 0}, {"hf/config.json", 511}, {"hf/x", 512}, {"optim", 513}};
    const struct tar t = {"step-00000005", files, 5};
    static struct tar_run run;
    unsigned char got[2048];
    const int64_t size = make_whole(&t);
    CHECK(size == 5 * 512 + 512 + 0 + 512 + 512 + 1024 + 1024);
    for (int64_t at = 0; at < size; at++) {
        tar_at(&t, at, &run);
        CHECK(run.size > 0 && run.size <= 2048 && run.size <= size - at);
        copy_run(&run, run.size, got);
        if (memcmp(got, whole + at, (size_t)run.size)) CHECK_MSG(false, "position %d", (int)at);
    }
}

static int run_shell(const char *fmt, const char *dir)
{
    char command[512];
    snprintf(command, sizeof command, fmt, dir, dir, dir);
    return system(command);
}

/* Checks names of 1 to 127 bytes, with and without a slash at which the header can split a name.
 * The system's tar must extract files with exactly these names. */
static void test_system_tar(void)
{
    static char name[254][128];
    static struct tar_file files[254];
    char dir[] = "/tmp/seqd-tar-XXXXXX", path[512];
    for (int i = 0; i < 254; i++) {
        const int n = i / 2 + 1;
        memset(name[i], i % 2 ? n > 20 ? 'z' : 'x' : 'y', (size_t)n);
        if (n > 20 && i % 2) name[i][n / 3] = name[i][n / 2] = '/';
        files[i] = (struct tar_file){name[i], i * 3};
    }
    const struct tar t = {"a-directory-whose-name-is-long-too-so-that-it-is-cut", files, 254};
    const int64_t size = make_whole(&t);
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/t.tar", dir);
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(whole, 1, (size_t)size, f) == (size_t)size && !fclose(f));
    CHECK(!run_shell("cd %s && tar -xf t.tar 2>err && ! test -s err", dir));
    for (int i = 0; i < 254; i++) {
        char got[1024];
        snprintf(path, sizeof path, "%s/%s/%.127s", dir, t.top, name[i]);
        f = fopen(path, "r");
        CHECK_MSG(f != NULL, "%s", path);
        if (!f) continue;
        CHECK(fread(got, 1, sizeof got, f) == (size_t)files[i].size);
        for (int64_t k = 0; k < files[i].size; k++) CHECK((unsigned char)got[k] == byte_of(i, k));
        fclose(f);
    }
    CHECK(!run_shell("rm -rf %s", dir));
}

/* Checks that a file of 8 GiB or more has its size in a pax header. The system's tar must list
 * this size; it gets only the headers. */
static void test_large(void)
{
    static const int64_t sizes[] = {((int64_t)1 << 33) - 1, (int64_t)1 << 33, (int64_t)1 << 50};
    char dir[] = "/tmp/seqd-tar-XXXXXX", command[512], want[64];
    CHECK(mkdtemp(dir) != NULL);
    for (int i = 0; i < 3; i++) {
        const struct tar_file file = {"big", sizes[i]};
        const struct tar t = {"s", &file, 1};
        const int head = i ? 3 * TAR_BLOCK : TAR_BLOCK;
        static struct tar_run run;
        tar_at(&t, 0, &run);
        CHECK(run.file < 0 && run.size == head);
        snprintf(command, sizeof command, "%s/t.tar", dir);
        FILE *f = fopen(command, "w");
        CHECK(f && fwrite(run.bytes, 1, (size_t)run.size, f) == (size_t)run.size && !fclose(f));
        snprintf(want, sizeof want, " %lld ", (long long)sizes[i]);
        snprintf(command, sizeof command, "tar -tvf %s/t.tar 2>/dev/null | grep -q -- '%s.*s/big'",
                 dir, want);
        CHECK_MSG(!system(command), "%lld", (long long)sizes[i]);
        tar_at(&t, head + sizes[i] - 1, &run);
        CHECK(run.file == 0 && run.offset == sizes[i] - 1 && run.size == 1);
        CHECK(tar_size(&t) == head + (sizes[i] + 511) / 512 * 512 + 1024);
    }
    CHECK(!run_shell("rm -rf %s", dir));
}

static void test_if_range(void)
{
    CHECK(range_of("bytes=1-2", NULL, "\"a\"").given);
    CHECK(range_of("bytes=1-2", NULL, NULL).given);
    CHECK(range_of("bytes=1-2", "\"a\"", "\"a\"").given);
    CHECK(!range_of("bytes=1-2", "\"b\"", "\"a\"").given);
    /* a weak tag never matches for a range */
    CHECK(!range_of("bytes=1-2", "W/\"a\"", "\"a\"").given);
    CHECK(!range_of("bytes=1-2", "\"a\"", NULL).given);
    CHECK(range_none_match("\"x\", \"a\"", "\"a\"") && range_none_match("*", "\"a\""));
    CHECK(!range_none_match("\"aa\"", "\"a\"") && !range_none_match(NULL, "\"a\""));
    CHECK(!range_none_match("\"a\"", NULL));
}

int main(void)
{
    seqd_test_init();
    RUN(test_every_position);
    RUN(test_system_tar);
    RUN(test_large);
    RUN(test_if_range);
    return test_done("seqd_tar");
}
