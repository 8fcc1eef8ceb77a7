/* test_trees: tests how trees of files are removed and measured. A tree is removed as a whole or
 * not at all. It is measured by the space that it occupies on the disk. Files outside of the trees
 * must be unchanged. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/trees.h"
#include "tests/lib/test.h"

static struct loop *l;
static char dir[64];
static struct tree got[TREES_BATCH];
static int n_got;
static struct err why;

static void on_done(void *arg, const struct tree *t, int n, const struct err *e)
{
    n_got = n;
    for (int i = 0; i < n; i++) got[i] = t[i];
    why = e ? *e : (struct err){0};
}

static const char *at(const char *name)
{
    static char path[4][256];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static void put(const char *name, size_t size)
{
    char parent[256], *data = calloc(1, size + 1);
    snprintf(parent, sizeof parent, "%s", at(name));
    *strrchr(parent, '/') = 0;
    CHECK(!file_make_dir(parent, NULL) && !file_write(at(name), data, size, NULL));
    free(data);
}

static void begin(void)
{
    struct err e;
    snprintf(dir, sizeof dir, "/tmp/seqd-trees-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    l = loop_create(NULL, NULL, &e);
}

static void finish(void)
{
    loop_destroy(l);
    CHECK(!file_remove(dir, NULL));
}

static void run(struct trees *t, const char *const *names, int n, bool remove)
{
    struct tree *list = calloc((size_t)n, sizeof *list);
    for (int i = 0; i < n; i++) {
        list[i].id = i;
        snprintf(list[i].path, sizeof list[i].path, "%s", at(names[i]));
    }
    n_got = 0;
    (remove ? trees_remove : trees_measure)(t, list, n, on_done, NULL);
    free(list); /* it was copied */
    while (!n_got) loop_turn(l, 10);
    CHECK(n_got == n);
}

static void test_whole(void)
{
    static const char *const names[] = {"jobs/1", "jobs/2", "jobs/3"};
    begin();
    struct trees *t = trees_create(l);
    put("jobs/1/a", 100000), put("jobs/1/b/c/d", 5000), put("jobs/2/x", 1);
    put("jobs/10/a", 1), put("jobs/1.gone/half", 70000), put("out/side", 3);
    CHECK(!symlink("../../out", at("jobs/1/link")) && !symlink("2", at("jobs/link2")));
    run(t, names, 3, false);
    CHECK(!why.code && got[0].size >= 105000 && got[1].size > 0 && got[2].size == 0);
    const int64_t size = got[0].size;
    run(t, names, 3, true);
    CHECK(!why.code && got[0].size >= size + 70000 && got[0].id == 0 && got[2].id == 2);
    CHECK(!file_exists(at("jobs/1")) && !file_exists(at("jobs/1.gone")));
    CHECK(!file_exists(at("jobs/2")) && file_exists(at("jobs/10/a")) &&
          file_exists(at("out/side")));
    run(t, names, 3, true);
    CHECK(!why.code && got[0].size == 0);
    trees_destroy(t);
    finish();
}

/* Checks a tree that cannot be removed. The error must name the tree, and the next trees must
 * still be removed. */
static void test_failure(void)
{
    static const char *const names[] = {"jobs/1", "jobs/2"};
    char deep[1024] = "jobs/1";
    begin();
    struct trees *t = trees_create(l);
    for (int i = 0; i < 40; i++) strcat(deep, "/d");
    strcat(deep, "/f");
    put(deep, 1), put("jobs/2/x", 1);
    run(t, names, 2, true);
    CHECK(why.code == ERR_TOO_LARGE && strstr(why.text, "jobs/1") && got[0].code && !got[1].code);
    CHECK(!file_exists(at("jobs/1")) && file_exists(at("jobs/1.gone")) &&
          !file_exists(at("jobs/2")));
    trees_destroy(t);
    finish();
}

/* Checks the end of the program. A removal in progress is interrupted, and waiting removals are
 * dropped. No removal gets an answer. */
static void test_end(void)
{
    begin();
    struct trees *t = trees_create(l);
    struct tree one = {.id = 1};
    snprintf(one.path, sizeof one.path, "%s", at("jobs/1"));
    put("jobs/1/x", 1);
    n_got = 0;
    for (int i = 0; i < 100; i++) trees_remove(t, &one, 1, on_done, NULL);
    trees_destroy(t);
    CHECK(n_got == 0);
    finish();
}

int main(void)
{
    RUN(test_whole);
    RUN(test_failure);
    RUN(test_end);
    return test_done("trees");
}
