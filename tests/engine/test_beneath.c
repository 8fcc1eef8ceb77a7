/* Checks that a path of a job is refused if the path, or a link in the path, leads out of its
 * root. This is checked for models, weights, shards and checkpoints (test_context checks
 * contexts). If a link leads to a file outside, the error's text must contain neither a byte nor
 * the size of that file. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/small.h"
#include "worker/hf/hf.h"
#include "worker/ckpt/ckpt.h"
#include "worker/data/source.h"
#include "worker/rank/roots.h"

static char dir[64], root[80]; /* dir/root is the root; dir/secret is outside of it */
static struct err e;

static char *in_root(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *in_root(const char *fmt, ...)
{
    static char path[8][FILE_PATH_SIZE];
    static int k;
    char tail[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(tail, sizeof tail, fmt, ap);
    va_end(ap);
    k = (k + 1) % 8;
    snprintf(path[k], sizeof path[k], "%s/%s", root, tail);
    return path[k];
}

static void link_to(const char *name, const char *target)
{
    unlink(in_root("%s", name));
    CHECK_MSG(symlink(target, in_root("%s", name)) == 0, "%s", name);
}

static char *outside(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* ---- opening a path -------------------------------------------------------------------------- */

static bool opens(int (*open_it)(const char *, const char *, int), const char *path)
{
    errno = 0;
    const int fd = open_it(root, path, 0);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static void test_links(void)
{
    int (*const ways[])(const char *, const char *, int) = {beneath_open, beneath_open_old};
    CHECK(file_make_dir(in_root("a/b"), &e) == 0);
    CHECK(file_write(in_root("a/b/file"), "inside", 6, &e) == 0);
    link_to("relative", "a/b/file");
    link_to("absolute", in_root("a/b/file")); /* links as the Hub's tools and people make them */
    link_to("a/b/up", "../../relative");
    link_to("folder", "a/b");
    link_to("leaves", outside("secret"));
    link_to("a/climbs", "../../secret");
    link_to("out", dir);
    link_to("magic", "/proc/self/root/etc/passwd");
    link_to("loop", "loop");
    for (int i = 0; i < 2; i++) {
        static const char *const good[] = {"a/b/file", "relative",    "absolute",
                                           "a/b/up",   "folder/file", "folder/up"};
        static const char *const bad[] = {"leaves", "a/climbs",  "out/secret",    "magic",
                                          "loop",   "../secret", "a/../../secret"};
        for (int k = 0; k < 6; k++)
            CHECK_MSG(opens(ways[i], in_root("%s", good[k])), "%s", good[k]);
        for (int k = 0; k < 7; k++)
            CHECK_MSG(!opens(ways[i], in_root("%s", bad[k])) && (errno == EXDEV || errno == ELOOP),
                      "%s: %s", bad[k], strerror(errno));
        CHECK(!opens(ways[i], in_root("nothing")) && errno == ENOENT);
        CHECK(!opens(ways[i], outside("secret")) && errno == EXDEV);
        /* a directory whose name only begins with the root's name */
        CHECK(!opens(ways[i], outside("root-2/x")));
    }
    char *text = file_read(in_root("leaves"), 100, NULL, &e);
    CHECK(!text && e.code == ERR_INVALID && strstr(e.text, "leads outside the root"));
    link_to("leaves", outside("nothing"));
    /* the error must not tell whether the target exists, either */
    CHECK(!opens(beneath_open, in_root("leaves")) && errno == EXDEV);
    CHECK((text = file_read(in_root("absolute"), 100, NULL, &e)) != NULL);
    free(text);
    /* a path that does not begin with a root */
    CHECK((text = file_read(outside("secret"), 100, NULL, &e)) != NULL);
    free(text);
}

/* ---- paths that jobs name -------------------------------------------------------------------- */

/* Checks that the error's text reports that the link leads outside, and contains nothing about the
 * file to which it leads. */
static void check_refused(const char *what, int64_t rc)
{
    CHECK_MSG(rc < 0 && strstr(e.text, "leads outside"), "%s: %s", what, e.text);
    CHECK_MSG(!strstr(e.text, "TOPSECR") && !strstr(e.text, "4995128901736877908") &&
                  !strstr(e.text, "33 bytes"),
              "%s: %s", what, e.text);
    e = (struct err){0};
}

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *why)
{
    return 0;
}

static void test_model(void)
{
    const struct hf_sink sink = {take, NULL};
    char text[2048];
    float *x = calloc((size_t)param_count(&tiny_shape), sizeof *x);
    CHECK(hf_save(in_root("m"), &tiny_shape, DT_F32, x, &e) == 0);
    CHECK_MSG(hf_describe(in_root("m"), text, sizeof text, &e) > 0, "%s", e.text);
    /* The Hub's cache has a snapshot, which consists of links to files in a directory next to the
     * snapshot. */
    CHECK(file_make_dir(in_root("hub/blobs"), &e) == 0 &&
          file_make_dir(in_root("hub/snapshots/1"), &e) == 0);
    CHECK(!rename(in_root("m/model.safetensors"), in_root("hub/blobs/w")) &&
          !rename(in_root("m/config.json"), in_root("hub/blobs/c")));
    link_to("hub/snapshots/1/model.safetensors", "../../blobs/w");
    link_to("hub/snapshots/1/config.json", in_root("hub/blobs/c"));
    CHECK_MSG(hf_describe(in_root("hub/snapshots/1"), text, sizeof text, &e) > 0, "%s", e.text);
    CHECK(hf_load(in_root("hub/snapshots/1"), &tiny_shape, DT_F32, x, &e) == 0);
    /* One of the snapshot's files is a link that leads outside. */
    link_to("hub/snapshots/1/model.safetensors", outside("secret"));
    check_refused("weights", hf_describe(in_root("hub/snapshots/1"), text, sizeof text, &e));
    check_refused("load", hf_load(in_root("hub/snapshots/1"), &tiny_shape, DT_F32, x, &e));
    check_refused("pieces", hf_load_pieces(in_root("hub/snapshots/1"), &tiny_shape, &sink, &e));
    CHECK(unlink(in_root("hub/snapshots/1/model.safetensors")) == 0);
    link_to("hub/snapshots/1/model.safetensors.index.json", outside("secret"));
    check_refused("index", hf_describe(in_root("hub/snapshots/1"), text, sizeof text, &e));
    CHECK(unlink(in_root("hub/snapshots/1/model.safetensors.index.json")) == 0);
    static const char index[] = "{\"weight_map\":{\"lm_head.weight\":\"s.safetensors\"}}";
    CHECK(file_write(in_root("hub/snapshots/1/model.safetensors.index.json"), index,
                     sizeof index - 1, &e) == 0);
    link_to("hub/snapshots/1/s.safetensors", "../../../../secret");
    check_refused("shard", hf_describe(in_root("hub/snapshots/1"), text, sizeof text, &e));
    link_to("hub/snapshots/1/config.json", outside("secret"));
    check_refused("config", hf_describe(in_root("hub/snapshots/1"), text, sizeof text, &e));
    free(x);
}

/* Checks a directory that is itself a symlink. The link is resolved first, and its target must be
 * beneath a root. */
static void test_directory(void)
{
    const char *const roots[] = {root};
    char out[RANK_PATH_SIZE];
    link_to("there", in_root("m"));
    CHECK(roots_directory("there", roots, 1, "model.path", out, &e) == 0);
    CHECK_STR(out, in_root("m"));
    link_to("there", dir);
    CHECK(roots_directory("there", roots, 1, "model.path", out, &e) == -1 && e.code == ERR_INVALID);
    link_to("file", outside("secret"));
    CHECK(roots_file("file", roots, 1, "context.load", out, &e) == -1 && e.code == ERR_INVALID);
}

static void test_checkpoint(void)
{
    static const char *const files[] = {"optim.safetensors", "train_state.json",
                                        "hf/model.safetensors", "MANIFEST.json"};
    float *x = calloc((size_t)param_count(&tiny_shape), sizeof *x);
    const struct ckpt_arrays a = {.dtype = DT_F32, .params = x, .m = x, .v = x};
    const struct ckpt_state s = {.step = 3};
    struct ckpt_info info, seen;
    for (int i = 0; i < 4; i++) {
        CHECK(file_remove(in_root("job"), &e) == 0);
        CHECK_MSG(ckpt_save(in_root("job"), 1, &tiny_shape, &a, &s, &info, &e) == 0, "%s", e.text);
        CHECK_MSG(ckpt_check(info.path, &seen, &e) == 0, "%s", e.text);
        const char *name = in_root("job/checkpoints/step-00000003/%s", files[i]);
        CHECK(rename(name, in_root("moved")) == 0 && symlink(in_root("moved"), name) == 0);
        CHECK_MSG(ckpt_check(info.path, &seen, &e) == 0, "%s: %s", files[i], e.text);
        CHECK(unlink(name) == 0 && symlink(outside("secret"), name) == 0);
        check_refused(files[i], ckpt_check(info.path, &seen, &e));
        check_refused(files[i], checkpoint_load(info.path, &tiny_shape, &a, NULL, &e));
    }
    free(x);
}

/* ---- paths of seqd --------------------------------------------------------------------------- */

static bool reads(const char *path)
{
    const int fd = beneath_read(path, &e);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static void put(const char *path)
{
    CHECK_MSG(file_write(path, "private", 7, &e) == 0, "%s", e.text);
}

/* Checks that a marked directory can be read only through its grants. A link, a second root or the
 * root "/" must not give access to it. */
static void test_private(void)
{
    const char *const roots[] = {root};
    char out[RANK_PATH_SIZE], granted[4096];
    CHECK(file_make_dir(in_root("state/uploads/ann"), &e) == 0 &&
          file_make_dir(in_root("state/uploads/bob"), &e) == 0);
    put(in_root("state/token"));
    put(in_root("state/uploads/ann/a"));
    put(in_root("state/uploads/bob/b"));
    CHECK(reads(in_root("state/token")));
    CHECK(beneath_mark(in_root("state"), &e) == 0 && beneath_mark(in_root("state"), &e) == 0);
    CHECK(!reads(in_root("state/token")) && e.code == ERR_INVALID);
    CHECK(strstr(e.text, "job:ID/step-N") != NULL);
    link_to("way", in_root("state/uploads"));
    link_to("tok", in_root("state/token"));
    CHECK(!reads(in_root("way/ann/a")) && !reads(in_root("tok")));
    CHECK(beneath_open(root, in_root("way/ann/a"), 0) < 0 && errno == EPERM);
    CHECK(beneath_open_old(root, in_root("state/token"), 0) < 0 && errno == EPERM);
    CHECK(beneath_open_old("/", in_root("state/token"), 0) < 0 && errno == EPERM);
    CHECK(beneath_open(root, in_root("state"), O_DIRECTORY) < 0 && errno == EPERM);
    /* The error must not even tell whether the path exists. */
    CHECK(beneath_private(in_root("state/none")) && beneath_private(in_root("way/x/y")));
    CHECK(!beneath_private(in_root("none/x")) && !beneath_private("/"));
    CHECK(roots_directory("state/none", roots, 1, "model.path", out, &e) < 0);
    CHECK(e.code == ERR_INVALID && !strcmp(e.field, "model.path"));
    CHECK(roots_directory("way/ann", roots, 1, "model.path", out, &e) < 0 && e.code == ERR_INVALID);
    /* A relative name that does not exist is reported as missing, even if the second root is
     * private. Such a name is not treated as an attempt to read the private root. */
    const char *const beside[] = {root, in_root("state")};
    CHECK(roots_directory("none", beside, 2, "model.path", out, &e) < 0 && e.code == ERR_NOT_FOUND);
    CHECK_MSG(strstr(e.text, "none does not exist on this node beneath ") &&
                  strstr(e.text, "in which relative paths begin: give the whole path"),
              "%s", e.text);
    CHECK(roots_directory("uploads", beside, 2, "model.path", out, &e) < 0 &&
          e.code == ERR_NOT_FOUND);
    /* A grant opens one directory. A granted path that does not exist yet is reported as missing,
     * and not as private. */
    snprintf(granted, sizeof granted, "%s", in_root("state/uploads/ann"));
    beneath_grant(granted);
    beneath_grant(in_root("state/later"));
    CHECK(reads(in_root("way/ann/a")) && reads(in_root("state/uploads/ann/a")));
    /* A relative path never begins in a private directory, even if the directory is granted. */
    put(in_root("state/uploads/ann/deposit"));
    const char *const with_grant[] = {root, granted};
    struct source_list list = {0};
    CHECK(beneath_begins(root) && !beneath_begins(granted) && !beneath_private(granted));
    CHECK(source_expand(&list, "deposit", with_grant, 2, 0, "input.path", &e) && !list.n);
    CHECK(e.code == ERR_NOT_FOUND && strstr(e.text, "in which relative paths begin"));
    CHECK(roots_file("deposit", with_grant, 2, "context.load", out, &e) && e.code == ERR_NOT_FOUND);
    CHECK(!source_expand(&list, in_root("state/uploads/ann/deposit"), with_grant, 2, 0,
                         "input.path", &e));
    source_list_fini(&list);
    CHECK(!reads(in_root("state/uploads/bob/b")) && !reads(in_root("state/token")));
    CHECK(!beneath_private(in_root("state/later/x")) && beneath_private(in_root("state/late")));
    link_to("state/uploads/ann/out", in_root("state/token"));
    CHECK(!reads(in_root("state/uploads/ann/out")) && e.code == ERR_INVALID);
    /* A directory within a grant is private if it has a mark of its own. */
    CHECK(beneath_mark(granted, &e) == 0 && reads(in_root("state/uploads/ann/a")));
    CHECK(file_make_dir(in_root("state/uploads/ann/deep"), &e) == 0);
    put(in_root("state/uploads/ann/deep/x"));
    CHECK(reads(in_root("state/uploads/ann/deep/x")));
    CHECK(beneath_mark(in_root("state/uploads/ann/deep"), &e) == 0);
    CHECK(!reads(in_root("state/uploads/ann/deep/x")));
    beneath_grant_none();
    CHECK(!reads(in_root("state/uploads/ann/a")));
    CHECK(file_remove(in_root("state"), &e) == 0);
}

/* Checks a directory to which all users may write. A mark in it that a different user owns must
 * have no effect. */
static void test_mark_of_another(void)
{
    CHECK(file_make_dir(in_root("shared"), &e) == 0);
    put(in_root("shared/a"));
    CHECK(beneath_mark(in_root("shared"), &e) == 0 && !reads(in_root("shared/a")));
    if (geteuid()) return; /* only root can change the owner of a file */
    CHECK(lchown(in_root("shared/" BENEATH_MARK), 65534, 65534) == 0);
    CHECK(!reads(in_root("shared/a")));
    CHECK(chmod(in_root("shared"), 01777) == 0 && reads(in_root("shared/a")));
}

/* ---- names that other programs give ---------------------------------------------------------- */

static void test_names(void)
{
    static const char *const good[] = {"a",   "a/b", "a..b", "..a",
                                       "...", "a.",  ".a",   "a b/\303\244"};
    static const char *const bad[] = {"",    "/",      "/a",       "a/",       "a//b",
                                      ".",   "..",     "a/..",     "../a",     "a/./b",
                                      "a\n", "a/\x7f", "a/\x01/b", "a\xc2\x9b"};
    char *lengthy = calloc(1, 512);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_MSG(beneath_name_good(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(!beneath_name_good(bad[i]), "%s", bad[i]);
    memset(lengthy, 'x', 255);
    CHECK(beneath_name_good(lengthy));
    lengthy[255] = 'x';
    CHECK(!beneath_name_good(lengthy)); /* no file can have so long a name */
    free(lengthy);
}

/* Checks that missing directories are made, and that a link is not followed where a directory is
 * expected. */
static void test_make_parent(void)
{
    const int at = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *leaf = NULL;
    struct stat st;
    CHECK(at >= 0);
    int fd = beneath_make_parent(at, "made/of/parts", 0700, &leaf, &e);
    CHECK(fd >= 0 && !strcmp(leaf, "parts") && !stat(in_root("made/of"), &st));
    CHECK((st.st_mode & 0777) == 0700 && stat(in_root("made/of/parts"), &st));
    close(fd);
    link_to("led", "..");
    CHECK(beneath_make_parent(at, "led/x/y", 0700, &leaf, &e) < 0 && e.code == ERR_INVALID);
    CHECK(access(outside("x"), F_OK));
    fd = open(in_root("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && !close(fd));
    CHECK(beneath_make_parent(at, "file/x", 0700, &leaf, &e) < 0 && e.code == ERR_INVALID);
    close(at);
}

int main(void)
{
    snprintf(dir, sizeof dir, "/tmp/seqd-beneath-XXXXXX");
    if (!mkdtemp(dir)) abort();
    snprintf(root, sizeof root, "%s/root", dir);
    CHECK(file_make_dir(root, &e) == 0);
    /* The secret has 33 bytes. Read as a length, its first 8 bytes are 4995128901736877908. */
    CHECK(file_write(outside("secret"), "TOPSECRET of another user's file.", 33, &e) == 0);
    const char *const roots[] = {"/", root};
    beneath_confine(roots, 2);
    RUN(test_links);
    RUN(test_private);
    RUN(test_mark_of_another);
    RUN(test_names);
    RUN(test_make_parent);
    RUN(test_model);
    RUN(test_directory);
    RUN(test_checkpoint);
    file_remove(dir, NULL);
    return test_done("beneath");
}
