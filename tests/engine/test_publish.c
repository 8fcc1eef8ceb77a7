/* Checks output.path. The job makes the directory, which must be beneath its root. A later attempt
 * of the job may use the directory again, but no other job may. Checks that disks without room are
 * refused. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "tests/lib/test.h"
#include "worker/rank/publish.h"
#include "worker/rank/space.h"

static char dir[64], root[128], other[128], from[128];
static struct err e;
static struct publish p;

static const char *in(const char *base, const char *name)
{
    static char out[4][512];
    static int k;
    k = (k + 1) % 4;
    snprintf(out[k], sizeof out[k], "%s/%s", base, name);
    return out[k];
}

static int open_as(const char *path, const char *owner)
{
    const char *const roots[] = {root, other};
    e = (struct err){0};
    return publish_open(&p, path, roots, 2, owner, &e);
}

static void check_text(const char *path, const char *want)
{
    char *text = file_read(path, 4096, NULL, &e);
    CHECK_MSG(text && !strcmp(text, want), "%s: %s", path, text ? text : e.text);
    free(text);
}

static void test_own(void)
{
    struct stat st;
    CHECK_MSG(!open_as(in(root, "a/b"), "job 7\n"), "%s", e.text);
    check_text(in(root, "a/b/" PUBLISH_OWNER), "job 7\n");
    CHECK_MSG(!publish_file(&p, from, "x.jsonl", &e), "%s", e.text);
    CHECK(!publish_file(&p, from, "hf/deep/x", &e));
    check_text(in(root, "a/b/x.jsonl"), "results");
    check_text(in(root, "a/b/hf/deep/x"), "results");
    CHECK(!stat(in(root, "a/b/x.jsonl"), &st) && (st.st_mode & 0777) == 0644);
    CHECK(!stat(in(root, "a"), &st) && (st.st_mode & 0777) == 0755);
    publish_close(&p);
    CHECK(!open_as(in(root, "a/./b"), "job 7\n")); /* a later attempt */
    CHECK(!file_write(from, "better", 6, &e) && !publish_file(&p, from, "x.jsonl", &e));
    check_text(in(root, "a/b/x.jsonl"), "better");
    publish_close(&p);
    CHECK(open_as(in(root, "a/b"), "job 8\n") && e.code == ERR_CONFLICT);
    CHECK_STR(e.field, "output.path");
    /* it was made as the parent of a/b */
    CHECK(open_as(in(root, "a"), "job 7\n") && e.code == ERR_CONFLICT);
    CHECK(!open_as(in(other, "c"), "job 8\n"));
    publish_close(&p);
    CHECK(!open_as("relative", "job 8\n"));
    publish_close(&p);
    CHECK(file_exists(in(root, "relative/" PUBLISH_OWNER)));
    CHECK(!open_as("", "job 8\n") && !publish_file(&p, "/none", "x", &e)); /* no output.path */
}

/* Checks a file that is one byte longer than two pieces. A copy is made in pieces of 1 MiB, and
 * all pieces of the file differ. */
static void test_large(void)
{
    enum { SIZE = (2 << 20) + 1 };
    size_t n = 0;
    char *want = malloc(SIZE);
    for (int i = 0; want && i < SIZE; i++) want[i] = (char)(i % 251);
    CHECK(want && !file_write(from, want, SIZE, &e));
    CHECK_MSG(!open_as(in(root, "large"), "job 7\n"), "%s", e.text);
    CHECK_MSG(!publish_file(&p, from, "x.bin", &e), "%s", e.text);
    publish_close(&p);
    char *got = file_read(in(root, "large/x.bin"), SIZE + 1, &n, &e);
    CHECK_MSG(got && want && n == SIZE && !memcmp(got, want, SIZE), "%zu bytes, want %d", n, SIZE);
    CHECK(!file_write(from, "better", 6, &e));
    free(got), free(want);
}

static void test_hostile(void)
{
    const char *const outside[] = {"/tmp/x", "/", in(dir, "secret/x")};
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(open_as(outside[i], "job 9\n") && e.code == ERR_NOT_FOUND, "%s", e.text);
        /* the error names the field only once */
        CHECK(!strcmp(e.field, "output.path") && !strstr(e.text, e.field));
    }
    CHECK(open_as(in(root, "../secret/x"), "job 9\n") && e.code == ERR_NOT_FOUND);
    CHECK(open_as("../secret/x", "job 9\n") && e.code == ERR_INVALID);
    CHECK(open_as(root, "job 9\n") && e.code == ERR_INVALID);
    CHECK(!symlink(in(dir, "secret"), in(root, "way")));
    CHECK(open_as(in(root, "way/x"), "job 9\n") && !file_exists(in(dir, "secret/x")));
    CHECK(open_as(in(root, "way"), "job 9\n") && e.code == ERR_CONFLICT);
    CHECK(!file_write(in(root, "file"), "mine", 4, &e));
    CHECK(open_as(in(root, "file"), "job 9\n") && e.code == ERR_CONFLICT);
    check_text(in(root, "file"), "mine");
    /* A link in place of a file is replaced and not followed; a link in place of a directory is
     * refused. */
    CHECK(!open_as(in(root, "z"), "job 9\n"));
    CHECK(!file_write(in(dir, "secret/kept"), "kept", 4, &e));
    CHECK(!symlink(in(dir, "secret/kept"), in(root, "z/x")) &&
          !symlink(in(dir, "secret"), in(root, "z/hf")));
    CHECK(!publish_file(&p, from, "x", &e));
    check_text(in(dir, "secret/kept"), "kept");
    CHECK(publish_file(&p, from, "hf/kept", &e));
    check_text(in(dir, "secret/kept"), "kept");
    CHECK(publish_file(&p, in(dir, "none"), "y", &e) && !file_exists(in(root, "z/y")));
    publish_close(&p);
    CHECK(!beneath_mark(root, &e) && open_as(in(root, "q"), "job 9\n") && e.code == ERR_INVALID);
}

/* ---- room ------------------------------------------------------------------------------------ */

static bool lacks(const char *at, int copy, int64_t size, const char *field, const char *says)
{
    e = (struct err){0};
    return space_check("the model", at, copy, size, &e) && e.code == ERR_NO_SPACE &&
           !strcmp(e.field, field) && strstr(e.text, says);
}

/* Checks sizes for which the disk has room once, but not twice. /proc has no room at all. */
static void test_room(void)
{
    struct statvfs fs;
    const int none = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_MSG(!open_as(in(other, "room"), "job 7\n"), "%s", e.text);
    CHECK(none >= 0 && !statvfs(root, &fs));
    const int64_t most = (int64_t)(fs.f_bavail * fs.f_frsize) / 3 * 2;
    CHECK_MSG(!space_check("the model", root, -1, most, &e), "%s", e.text);
    CHECK_MSG(lacks(root, p.dir, most, "", "its copy in output.path"), "%s", e.text);
    CHECK_MSG(!space_check("the model", root, p.dir, most / 4, &e), "%s", e.text);
    CHECK_MSG(lacks(root, p.dir, INT64_MAX, "", root), "%s", e.text);
    CHECK_MSG(lacks(root, -1, INT64_MAX, "", "the model needs 8796093022208 MiB"), "%s", e.text);
    CHECK_MSG(lacks(root, none, most, "output.path", "and 0 MiB are free"), "%s", e.text);
    CHECK_MSG(lacks("/proc", p.dir, most, "", "/proc, and 0 MiB are free"), "%s", e.text);
    CHECK(space_check("the model", in(root, "none"), -1, 0, &e) && e.code == ERR_NOT_FOUND);
    close(none);
    publish_close(&p);
}

static void test_sizes(void)
{
    int64_t size = -1;
    CHECK(!file_make_dir(in(dir, "sizes/below"), &e) &&
          !space_of_files(in(dir, "sizes"), &size, &e));
    CHECK(size == 0);
    CHECK(!file_write(in(dir, "sizes/a"), "12345", 5, &e) &&
          !file_write(in(dir, "sizes/.b"), "1234567", 7, &e) &&
          !file_write(in(dir, "sizes/below/c"), "123", 3, &e) &&
          !symlink(from, in(dir, "sizes/d")));
    CHECK_MSG(!space_of_files(in(dir, "sizes"), &size, &e) && size == 12, "%lld", (long long)size);
    CHECK(space_of_files(in(dir, "none"), &size, &e) && e.code == ERR_NOT_FOUND);
}

int main(void)
{
    snprintf(dir, sizeof dir, "/tmp/seqd-publish-XXXXXX");
    if (!mkdtemp(dir)) abort();
    snprintf(root, sizeof root, "%s/root", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    snprintf(from, sizeof from, "%s/from", dir);
    CHECK(!file_make_dir(root, &e) && !file_make_dir(other, &e) &&
          !file_make_dir(in(dir, "secret"), &e) && !file_write(from, "results", 7, &e));
    RUN(test_own);
    RUN(test_large);
    RUN(test_hostile);
    RUN(test_room);
    RUN(test_sizes);
    file_remove(dir, NULL);
    return test_done("publish");
}
