/* test_ckpt: checks saving and loading of checkpoints, every kind of damage, concurrent writers,
 * full disks, and pruning. */
#include "tests/lib/adapter.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/scratch.h"
#include "api/core/field.h"
#include "api/core/job.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/log.h"
#include "worker/hf/base_id.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/ckpt/ckpt.h"
#include "worker/ckpt/digests.h"
#include "api/core/manifest.h"
#include "worker/ckpt/steps.h"
#include "worker/family/family.h"
#include "worker/plan/check.h"
#include "worker/family/config.h"
#include "worker/family/shape.h"

static char dir[64];
static struct err e;

static const struct ckpt_arrays none; /* only the state is read */
static const struct model_shape shape = {.family = FAMILY_LLAMA,
                                         .n_layers = 1,
                                         .width = 10,
                                         .n_heads = 3,
                                         .n_kv_heads = 1,
                                         .head_dim = 2,
                                         .ffn_width = 6,
                                         .vocab = 258,
                                         .max_pos = 128,
                                         .norm_eps = 1e-5,
                                         .rope_theta = 12345.678901234567,
                                         .tied = 1};

static const char *const all_files[] = {"hf/config.json",           "hf/generation_config.json",
                                        "hf/model.safetensors",     "hf/tokenizer.json",
                                        "hf/tokenizer_config.json", "optim.safetensors",
                                        "train_state.json",         "MANIFEST.json"};
enum { N_FILES = 8 };

static char *in_dir(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *in_dir(const char *fmt, ...)
{
    static char path[8][FILE_PATH_SIZE];
    static int k;
    char tail[FILE_PATH_SIZE - 100];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(tail, sizeof tail, fmt, ap);
    va_end(ap);
    k = (k + 1) % 8;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, tail);
    return path[k];
}

struct arrays {
    int64_t n;
    struct ckpt_arrays a;
};

static struct arrays arrays_new(int salt)
{
    struct arrays x = {.n = param_count(&shape)};
    float *p[3];
    for (int k = 0; k < 3; k++) {
        p[k] = malloc((size_t)x.n * sizeof(float));
        /* gaps between tensors; their NaN must not be written to the files */
        for (int64_t i = 0; i < x.n; i++) p[k][i] = NAN;
    }
    x.a.params = p[0];
    x.a.m = p[1];
    x.a.v = p[2];
    struct param q;
    for (int k = 0; k < param_tensors(&shape); k++) {
        param_get(&shape, k, &q);
        for (int64_t i = q.offset; i < q.offset + q.count; i++) {
            p[0][i] = sinf((float)(i + salt));
            x.a.m[i] = (float)i * 1e-40f; /* subnormals survive too */
            x.a.v[i] = (float)(i * 7 + salt) / 3;
        }
    }
    return x;
}

static void arrays_free(struct arrays *x)
{
    free(x->a.params);
    free(x->a.m);
    free(x->a.v);
}

static bool same(const float *got, const float *want)
{
    struct param q;
    for (int k = 0; k < param_tensors(&shape); k++) {
        param_get(&shape, k, &q);
        if (memcmp(got + q.offset, want + q.offset, (size_t)q.count * sizeof *got)) return false;
    }
    return true;
}

static struct ckpt_state state_of(int64_t step)
{
    struct ckpt_state s = {.step = step,
                           .tokens_seen = step * 4096,
                           .next_sample = step * 3,
                           .seed = -7,
                           .adam_t = step,
                           .lr = 1.0 / 3,
                           .loss = 2.5,
                           .n_ranks = 3,
                           .layout = 1,
                           .guard = {.skipped = 4,
                                     .streak = 2,
                                     .rollbacks = 1,
                                     .loss = {.n = 70, .mean = 2.0 / 3, .var = 1e-9 / 7},
                                     .norm = {.n = 71, .mean = 1e3 / 3, .var = 1e9 / 7}},
                           .n_evals = 6,
                           .eval_step = step - 1,
                           .eval_loss = 1.0 / 7,
                           .has_best = 1,
                           .best_step = step - 2,
                           .best_loss = 1.0 / 9,
                           .low = {step - 3, 1.0 / 11, 4}};
    snprintf(s.data_id, sizeof s.data_id, "0123456789abcdef");
    memset(s.spec_digest, 'd', 64);
    return s;
}

static bool same_state(const struct ckpt_state *a, const struct ckpt_state *b)
{
    return !memcmp(&a->guard, &b->guard, sizeof a->guard) && a->n_evals == b->n_evals &&
           a->eval_step == b->eval_step && a->eval_loss == b->eval_loss &&
           a->has_best == b->has_best && a->best_step == b->best_step &&
           a->best_loss == b->best_loss && !memcmp(&a->low, &b->low, sizeof a->low) &&
           a->step == b->step && a->tokens_seen == b->tokens_seen &&
           a->next_sample == b->next_sample && a->seed == b->seed && a->adam_t == b->adam_t &&
           a->lr == b->lr && a->loss == b->loss && !strcmp(a->data_id, b->data_id) &&
           !strcmp(a->spec_digest, b->spec_digest) && a->n_ranks == b->n_ranks &&
           a->layout == b->layout;
}

static int save(const char *job, int64_t epoch, int64_t step, int salt, struct ckpt_info *info)
{
    struct arrays x = arrays_new(salt);
    struct ckpt_state s = state_of(step);
    e = (struct err){0};
    int rc = ckpt_save(in_dir("%s", job), epoch, &shape, &x.a, &s, info, &e);
    arrays_free(&x);
    return rc;
}

static void test_round_trip(void)
{
    struct ckpt_info info, found;
    struct arrays want = arrays_new(1), got = arrays_new(2);
    struct ckpt_state s, t = state_of(500);
    char digest[SHA256_HEX], json[4096];
    CHECK(ckpt_find_latest(in_dir("job"), &found, &e) == 0);
    CHECK_MSG(save("job", 3, 500, 1, &info) == 0, "%s", e.text);
    CHECK_STR(info.path, in_dir("job/checkpoints/step-00000500"));
    CHECK(info.step == 500 && info.epoch == 3 && info.size > 10000);
    CHECK(hf_weights_digest(&shape, DT_F32, want.a.params, digest, &e) == 0);
    CHECK_STR(info.weights_sha256, digest);
    CHECK(!file_exists(in_dir("job/checkpoints/step-00000500.e3.tmp")));
    for (int i = 0; i < N_FILES; i++)
        CHECK(file_exists(in_dir("job/checkpoints/step-00000500/%s", all_files[i])));
    CHECK(ckpt_find_latest(in_dir("job"), &found, &e) == 1 && found.size == info.size &&
          found.step == 500 && !strcmp(found.path, info.path));
    CHECK_MSG(checkpoint_load(info.path, &shape, &got.a, &s, &e) == 0, "%s", e.text);
    CHECK(same(got.a.params, want.a.params) && same(got.a.m, want.a.m) && same(got.a.v, want.a.v));
    CHECK(same_state(&s, &t));
    CHECK(checkpoint_load(info.path, &shape, &none, &s, &e) == 0 && same_state(&s, &t));
    /* loads only the weights, first as a checkpoint and then as a model directory */
    struct ckpt_arrays only = {.params = got.a.params};
    memset(got.a.params, 0, (size_t)got.n * sizeof(float));
    CHECK(checkpoint_load(info.path, &shape, &only, NULL, &e) == 0 &&
          same(got.a.params, want.a.params));
    CHECK(hf_load(in_dir("job/checkpoints/step-00000500/hf"), &shape, DT_F32, got.a.params, &e) ==
          0);
    CHECK(ckpt_json(&info, json, sizeof json) > 0 && strstr(json, digest));
    CHECK(!strstr(json, "mb_s") && !ckpt_mb_s(&info)); /* saving was not timed */
    CHECK(ckpt_json(&info, json, 10) == -1);
    info.size = 3000000;
    info.save_ms = 2;
    CHECK(ckpt_json(&info, json, sizeof json) > 0 && strstr(json, "\"save_ms\":2,\"mb_s\":1500}"));
    arrays_free(&want);
    arrays_free(&got);
}

/* Checks a checkpoint whose digests were checked before. It must be loaded without computing the
 * digests again, unless it has changed. */
static void test_checked(void)
{
    struct ckpt_info info, other;
    struct arrays want = arrays_new(1), got = arrays_new(2);
    struct ckpt_state s, t = state_of(2);
    CHECK(save("checked", 1, 2, 1, &info) == 0 && save("checked", 1, 3, 2, &other) == 0);
    CHECK(ckpt_check(in_dir("checked/checkpoints/step-00000002"), &info, &e) == 0);
    CHECK_MSG(ckpt_load_checked(&info, &shape, &got.a, &s, &e) == 0, "%s", e.text);
    CHECK(same(got.a.params, want.a.params) && same(got.a.m, want.a.m) && same(got.a.v, want.a.v));
    CHECK(same_state(&s, &t));
    struct ckpt_info wrong = info;
    memcpy(wrong.weights_sha256, other.weights_sha256, SHA256_HEX);
    CHECK(ckpt_load_checked(&wrong, &shape, &got.a, &s, &e) == -1 && e.code == ERR_CORRUPT);
    CHECK_MSG(strstr(e.text, "has changed since it was checked"), "%s", e.text);
    wrong = info;
    wrong.step = 3;
    CHECK(ckpt_load_checked(&wrong, &shape, &got.a, &s, &e) == -1 && e.code == ERR_CORRUPT);
    CHECK(!truncate(in_dir("checked/checkpoints/step-00000002/optim.safetensors"), 1000));
    CHECK(ckpt_load_checked(&info, &shape, &got.a, &s, &e) == -1 && e.code == ERR_CORRUPT);
    CHECK_MSG(strstr(e.text, "optim.safetensors"), "%s", e.text);
    arrays_free(&want);
    arrays_free(&got);
}

/* Loads a state and saves it again in a later epoch. Every file except the manifest must have the
 * same bytes. */
static void test_resume_identical(void)
{
    struct ckpt_info a, b;
    struct arrays x = arrays_new(9);
    struct ckpt_state s;
    CHECK(save("twice", 1, 7, 1, &a) == 0 && checkpoint_load(a.path, &shape, &x.a, &s, &e) == 0);
    CHECK(ckpt_save(in_dir("twice2"), 2, &shape, &x.a, &s, &b, &e) == 0);
    for (int i = 0; i < N_FILES - 1; i++) {
        char h1[SHA256_HEX], h2[SHA256_HEX];
        CHECK(sha256_file(in_dir("twice/checkpoints/step-00000007/%s", all_files[i]), h1, NULL,
                          &e) == 0);
        CHECK(sha256_file(in_dir("twice2/checkpoints/step-00000007/%s", all_files[i]), h2, NULL,
                          &e) == 0);
        CHECK_MSG(!strcmp(h1, h2), "%s", all_files[i]);
    }
    CHECK_STR(a.weights_sha256, b.weights_sha256);
    arrays_free(&x);
}

/* Replaces a file's bytes. In contrast to file_write, it does not wait for an fsync. */
static int spoil(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ssize_t n = fd < 0 ? -1 : write(fd, data, size);
    if (fd >= 0) close(fd);
    return n == (ssize_t)size ? 0 : -1;
}

/* Damages one file of step 2. ckpt_check and the load must name the file, and ckpt_find_latest
 * must return step 1. */
static void check_damaged(const char *file)
{
    struct ckpt_info info;
    struct arrays x = arrays_new(0);
    struct ckpt_state s;
    char *step = strdup(in_dir("hurt/checkpoints/step-00000002"));
    const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    e = (struct err){0};
    CHECK_MSG(ckpt_check(step, &info, &e) == -1 && e.code == ERR_CORRUPT && strstr(e.text, name),
              "%s: %s", file, e.text);
    e = (struct err){0};
    CHECK(checkpoint_load(step, &shape, &x.a, &s, &e) == -1 && strstr(e.text, name));
    CHECK(checkpoint_load(step, &shape, &none, &s, &e) == -1);
    CHECK(ckpt_find_latest(in_dir("hurt"), &info, &e) == 1 && info.step == 1);
    free(step);
    arrays_free(&x);
}

static void test_damage(void)
{
    CHECK(save("hurt", 1, 1, 1, NULL) == 0 && save("hurt", 1, 2, 2, NULL) == 0);
    for (int i = 0; i < N_FILES; i++) {
        char *path = strdup(in_dir("hurt/checkpoints/step-00000002/%s", all_files[i]));
        size_t size;
        char *text = file_read(path, 1 << 20, &size, &e);
        /* flips one bit of a byte; in small files it does this for every third byte, in large
         * files for about 97 bytes at equal distances */
        size_t stride = size < 3000 ? 3 : size / 97;
        for (size_t k = 0; k < size; k += stride) {
            text[k] ^= (char)(1 << k % 8);
            CHECK(spoil(path, text, size) == 0);
            check_damaged(all_files[i]);
            text[k] ^= (char)(1 << k % 8);
        }
        for (size_t k = 0; k < size; k += 1 + size / 13) { /* truncated */
            CHECK(spoil(path, text, k) == 0);
            check_damaged(all_files[i]);
        }
        CHECK(spoil(path, text, size) == 0 && truncate(path, (off_t)size + 1) == 0);
        check_damaged(all_files[i]); /* longer */
        CHECK(unlink(path) == 0);
        check_damaged(all_files[i]); /* gone */
        CHECK(file_make_dir(path, &e) == 0);
        check_damaged(all_files[i]); /* the file has other contents */
        CHECK(file_remove(path, &e) == 0 && spoil(path, text, size) == 0);
        free(text);
        free(path);
    }
    struct ckpt_info info;
    /* step 2 is complete again */
    CHECK(ckpt_find_latest(in_dir("hurt"), &info, &e) == 1 && info.step == 2);
    CHECK(file_remove(in_dir("hurt/checkpoints/step-00000002"), &e) == 0);
    CHECK(ckpt_check(in_dir("hurt/checkpoints/step-00000002"), &info, &e) == -1 &&
          e.code == ERR_NOT_FOUND);
    /* a directory whose name has the wrong step */
    CHECK(rename(in_dir("hurt/checkpoints/step-00000001"),
                 in_dir("hurt/checkpoints/step-00000009")) == 0);
    CHECK(ckpt_find_latest(in_dir("hurt"), &info, &e) == 0);
}

/* There are files of several sizes. For every subset of these files, damages the files of the
 * subset. The error's text must be the same as if the files were checked one by one. */
static void test_large_files(void)
{
    enum { N = 5 };
    static const size_t sizes[N] = {10, 300000, 900000, 1, 700000};
    static char bytes[900000 + 16];
    char path[N][FILE_PATH_SIZE];
    struct manifest m = {.step = 1}, got;
    CHECK(!file_make_dir(in_dir("large"), &e));
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 31 + (i >> 8));
    for (int i = 0; i < N; i++) {
        snprintf(path[i], sizeof path[i], "%s/file%d", in_dir("large"), i);
        CHECK(!spoil(path[i], bytes + i, sizes[i]));
        CHECK(!manifest_add(&m, in_dir("large"), strrchr(path[i], '/') + 1, &e));
    }
    memset(m.weights_sha256, 'a', SHA256_HEX - 1);
    CHECK(!manifest_write(&m, in_dir("large"), &e));
    for (int set = 0; set < 1 << N; set++) {
        for (int how = 0; how < 3; how++) {
            struct err one = {0}, more = {0};
            for (int i = 0; i < N; i++) {
                const bool bad = set >> i & 1;
                CHECK(!spoil(path[i], bytes + i + (bad && !how), sizes[i] + (bad && how == 1)));
                if (bad && how == 2) CHECK(!unlink(path[i]));
            }
            const int rc = manifest_check(&got, in_dir("large"), MANIFEST_DIGESTS, &one);
            CHECK(rc == (set ? -1 : 0) && digests_check(&got, in_dir("large"), &more) == rc);
            CHECK(one.code == more.code && got.n_files == N);
            CHECK_STR(more.text, one.text);
        }
    }
    CHECK(digests_check(&got, in_dir("nothing"), &e) == -1 && e.code == ERR_NOT_FOUND);
}

/* Checks state files with a missing member, or with a member of a wrong type. They must be
 * refused, even if the manifest has their digests. */
static void test_state_fields(void)
{
    static const char *const keys[] = {"step",        "tokens_seen", "next_sample", "seed",
                                       "adam_t",      "lr",          "loss",        "data_id",
                                       "spec_digest", "n_ranks",     "layout",      "version"};
    struct ckpt_state s;
    CHECK(save("state", 1, 4, 1, NULL) == 0);
    char *step = strdup(in_dir("state/checkpoints/step-00000004"));
    char path[FILE_PATH_SIZE];
    snprintf(path, sizeof path, "%s/train_state.json", step);
    size_t size;
    char *text = file_read(path, 1 << 20, &size, &e);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        /* first the key is renamed, then its value becomes an array */
        for (int how = 0; how < 2; how++) {
            char bad[4096], quoted[64], *at;
            snprintf(quoted, sizeof quoted, "\"%s\":", keys[i]);
            memcpy(bad, text, size + 1);
            if (!(at = strstr(bad, quoted))) {
                CHECK_MSG(0, "%s is not in train_state.json", keys[i]);
                continue;
            }
            if (how == 0)
                at[1] ^= 0x20;
            else
                at[strlen(quoted)] = '[';
            struct manifest m, old;
            CHECK(file_write(path, bad, size, &e) == 0);
            CHECK(manifest_check(&old, step, MANIFEST_SIZES, &e) == 0);
            m = (struct manifest){.step = old.step, .epoch = old.epoch};
            snprintf(m.weights_sha256, sizeof m.weights_sha256, "%s", old.weights_sha256);
            for (int k = 0; k < old.n_files; k++)
                CHECK(manifest_add(&m, step, old.file[k].path, &e) == 0);
            CHECK(manifest_write(&m, step, &e) == 0);
            CHECK_MSG(checkpoint_load(step, &shape, &none, &s, &e) == -1 && e.code == ERR_CORRUPT &&
                          strstr(e.text, "train_state.json"),
                      "%s: %s", keys[i], e.text);
        }
    }
    free(step);
    free(text);
}

static void test_other_model(void)
{
    struct model_shape other = shape;
    struct ckpt_info info;
    struct arrays x = arrays_new(0);
    CHECK(save("other", 1, 1, 1, &info) == 0);
    other.n_layers = 2;
    CHECK(checkpoint_load(info.path, &other, &x.a, NULL, &e) == -1 && e.code == ERR_INVALID);
    CHECK_MSG(strstr(e.text, "num_hidden_layers"), "%s", e.text);
    other = shape;
    other.rope_theta = 1e4;
    CHECK(checkpoint_load(info.path, &other, &x.a, NULL, &e) == -1 && strstr(e.text, "rope_theta"));
    other = shape;
    other.tied = 0;
    CHECK(checkpoint_load(info.path, &other, &x.a, NULL, &e) == -1 &&
          strstr(e.text, "tie_word_embeddings"));
    arrays_free(&x);
}

/* Checks two writers that save the same step. If a valid checkpoint of the step exists, it must be
 * kept. An invalid checkpoint of the step must be renamed. */
static void test_two_epochs(void)
{
    struct ckpt_info first, second;
    CHECK(save("race", 1, 5, 1, &first) == 0 && save("race", 2, 5, 2, &second) == 0);
    CHECK(second.epoch == 1 && !strcmp(first.weights_sha256, second.weights_sha256));
    CHECK(!file_exists(in_dir("race/checkpoints/step-00000005.e2.tmp")));
    CHECK(truncate(in_dir("race/checkpoints/step-00000005/optim.safetensors"), 100) == 0);
    CHECK(save("race", 3, 5, 2, &second) == 0 && second.epoch == 3);
    CHECK(strcmp(first.weights_sha256, second.weights_sha256));
    CHECK(file_exists(in_dir("race/checkpoints/step-00000005.bad/optim.safetensors")));
    CHECK(ckpt_check(second.path, &first, &e) == 0 && first.epoch == 3);
}

/* Called before a checkpoint is removed. Adds 1 to told[0], which is the number of calls, and
 * stores the step after the earlier ones. Checks that the checkpoint still exists. */
static int note_removed(void *arg, int64_t step, const char *path, struct err *why)
{
    int64_t *told = arg;
    CHECK(file_exists(path) && strstr(path, "/step-0000000"));
    told[++told[0]] = step;
    return 0;
}

static int refuse_removal(void *arg, int64_t step, const char *path, struct err *why)
{
    return err_set(why, ERR_PEER, "the event was not sent");
}

static void test_prune(void)
{
    struct ckpt_info info;
    for (int64_t step = 1; step <= 6; step++) CHECK(save("prune", 2, step, 1, NULL) == 0);
    CHECK(truncate(in_dir("prune/checkpoints/step-00000006/hf/model.safetensors"), 9) == 0);
    CHECK(file_make_dir(in_dir("prune/checkpoints/step-00000007.e1.tmp/hf"), &e) == 0);
    CHECK(file_make_dir(in_dir("prune/checkpoints/step-00000007.e2.tmp/hf"), &e) == 0);
    CHECK(file_make_dir(in_dir("prune/checkpoints/step-mine"), &e) == 0);
    int64_t told[8] = {0};
    const struct ckpt_keep two = {.newest = 2, .removing = note_removed, .arg = told};
    CHECK_MSG(ckpt_prune(in_dir("prune"), &two, 2, &e) == 0, "%s", e.text);
    /* these are all removed checkpoints */
    CHECK(told[0] == 3 && told[1] == 3 && told[2] == 2 && told[3] == 1);
    static const char *const left[] = {"step-00000004", "step-00000005", "step-00000006",
                                       "step-mine", "step-00000007.e2.tmp"};
    static const char *const gone[] = {"step-00000001", "step-00000002", "step-00000003",
                                       "step-00000007.e1.tmp"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        CHECK_MSG(file_exists(in_dir("prune/checkpoints/%s", left[i])), "%s", left[i]);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        CHECK_MSG(!file_exists(in_dir("prune/checkpoints/%s", gone[i])), "%s", gone[i]);
    const struct ckpt_keep untold = {.newest = 1, .removing = refuse_removal};
    CHECK(ckpt_prune(in_dir("prune"), &untold, 3, &e) == -1 && e.code == ERR_PEER);
    CHECK(
        /* the removal was not reported, so the checkpoint is kept */
        file_exists(in_dir("prune/checkpoints/step-00000004")));
    CHECK(ckpt_prune(in_dir("prune"), &(struct ckpt_keep){.newest = 0}, 3, &e) ==
          0); /* the last complete one is never removed */
    CHECK(ckpt_find_latest(in_dir("prune"), &info, &e) == 1 && info.step == 5);
    CHECK(!file_exists(in_dir("prune/checkpoints/step-00000004")));
    CHECK(ckpt_prune(in_dir("never"), &(struct ckpt_keep){.newest = 1}, 1, &e) == 0);
    /* The newest checkpoint is found by the number in its name, and not by the order of names.
     * This number has more than eight digits. */
    CHECK(save("prune", 2, 123456789, 1, NULL) == 0);
    CHECK(ckpt_find_latest(in_dir("prune"), &info, &e) == 1 && info.step == 123456789);
}

/* Checks which checkpoints are kept. A checkpoint that keep_every selects, or that is marked as
 * the best one, must be kept, however old it is. A damaged checkpoint must be removed if there is
 * a newer complete one. */
static void test_prune_policy(void)
{
    const struct ckpt_keep keep = {.newest = 2, .every = 4};
    for (int64_t step = 1; step <= 10; step++) CHECK(save("policy", 2, step, 1, NULL) == 0);
    CHECK(ckpt_best(in_dir("policy")) == -1);
    CHECK(ckpt_mark_best(in_dir("policy"), 99, &e) == 0 && ckpt_best(in_dir("policy")) == -1);
    CHECK(ckpt_mark_best(in_dir("policy"), 3, &e) == 0 && ckpt_best(in_dir("policy")) == 3);
    CHECK(file_make_dir(in_dir("policy/checkpoints/step-00000010.bad/hf"), &e) == 0);
    CHECK(file_make_dir(in_dir("policy/checkpoints/step-00000011.bad"), &e) == 0);
    CHECK_MSG(ckpt_prune(in_dir("policy"), &keep, 1, &e) == 0, "%s", e.text);
    for (int64_t step = 1; step <= 10; step++) {
        const bool stays = step == 3 || step % 4 == 0 || step >= 9;
        const char *path = in_dir("policy/checkpoints/step-%08lld", (long long)step);
        CHECK_MSG(file_exists(path) == stays, "step %d", (int)step);
    }
    CHECK(!file_exists(in_dir("policy/checkpoints/step-00000010.bad")));
    CHECK(file_exists(in_dir("policy/checkpoints/step-00000011.bad")));
    CHECK(ckpt_mark_best(in_dir("policy"), 8, &e) == 0 && ckpt_best(in_dir("policy")) == 8);
    CHECK(ckpt_prune(in_dir("policy"), &(struct ckpt_keep){.newest = 1}, 1, &e) == 0);
    CHECK(!file_exists(in_dir("policy/checkpoints/step-00000003")));
    CHECK(!file_exists(in_dir("policy/checkpoints/step-00000004")));
    CHECK(ckpt_check(in_dir("policy/checkpoints/best"), NULL, &e) == 0);
    CHECK(symlink("../../etc", in_dir("policy/checkpoints/best.tmp")) == 0);
    CHECK(rename(in_dir("policy/checkpoints/best.tmp"), in_dir("policy/checkpoints/best")) == 0);
    CHECK(ckpt_best(in_dir("policy")) == -1); /* the mark names no step */
}

static void test_names(void)
{
    enum step_dir_kind kind;
    int64_t step, epoch;
    CHECK(steps_parse("step-00000500", &kind, &step, &epoch) && kind == STEP_WHOLE && step == 500);
    CHECK(steps_parse("step-00000500.e3.tmp", &kind, &step, &epoch) && kind == STEP_TMP);
    CHECK(step == 500 && epoch == 3);
    CHECK(steps_parse("step-7.bad", &kind, &step, &epoch) && kind == STEP_BAD && step == 7);
    static const char *const no[] = {"step-",
                                     "step-x",
                                     "step--1",
                                     "step-1.tmp",
                                     "step-1.e.tmp",
                                     "step-1.e1",
                                     "step-1.e1.tmp2",
                                     "step-1.bad2",
                                     "step-1.e-1.tmp",
                                     "best",
                                     "step-99999999999999999999"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        CHECK_MSG(!steps_parse(no[i], &kind, &step, &epoch), "%s", no[i]);
}

/* Saves in a child process whose files may not exceed limit bytes, as on a full disk. */
static int save_limited(int64_t limit)
{
    struct {
        int rc;
        enum err_code code;
        char text[512];
    } out = {0};
    int fd[2];
    if (pipe(fd) < 0) return -2;
    pid_t pid = fork();
    if (pid == 0) {
        struct ckpt_info info;
        const struct rlimit size = {(rlim_t)limit, (rlim_t)limit};
        signal(SIGXFSZ, SIG_IGN); /* a write then fails with EFBIG */
        out.rc = setrlimit(RLIMIT_FSIZE, &size) < 0 ? -3 : save("full", 2, 2, 2, &info);
        out.code = e.code;
        snprintf(out.text, sizeof out.text, "%s", e.text);
        ssize_t n = write(fd[1], &out, sizeof out);
        _exit(n != sizeof out);
    }
    close(fd[1]);
    ssize_t n = read(fd[0], &out, sizeof out);
    close(fd[0]);
    waitpid(pid, NULL, 0);
    CHECK(n == sizeof out);
    if (out.rc == -1)
        CHECK_MSG(out.code == ERR_TOO_LARGE && strstr(out.text, "File too large") &&
                      strstr(out.text, "RLIMIT_FSIZE") && strstr(out.text, "the file needs ") &&
                      strstr(out.text, "full/"),
                  "%lld: %s", (long long)limit, out.text);
    return out.rc;
}

/* Checks a write that fails at any point. The error must name a file, no .tmp file may remain, and
 * the older checkpoint must be intact. */
static void test_write_fails(void)
{
    struct ckpt_info info;
    CHECK(save("full", 1, 1, 1, NULL) == 0);
    int n_failed = 0;
    for (int64_t limit = 0; limit < 40000; limit += 700) {
        int rc = save_limited(limit);
        CHECK(rc == 0 || rc == -1);
        if (rc == 0) break;
        n_failed++;
        CHECK(!file_exists(in_dir("full/checkpoints/step-00000002.e2.tmp")));
        CHECK(!file_exists(in_dir("full/checkpoints/step-00000002")));
        CHECK(ckpt_find_latest(in_dir("full"), &info, &e) == 1 && info.step == 1);
    }
    CHECK_MSG(n_failed > 3, "%d", n_failed);
    CHECK(file_write(in_dir("plain"), "x", 1, &e) == 0);
    CHECK(save("plain", 1, 1, 1, NULL) == -1 && strstr(e.text, "plain"));
}

/* Checks a writer that is killed at any moment. Checkpoints that were complete must still exist,
 * and an incomplete checkpoint must not look complete. */
static void test_killed(void)
{
    struct ckpt_info info;
    CHECK(save("killed", 1, 1, 1, NULL) == 0);
    for (int round = 0; round < 40; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (int64_t step = 2;; step++) save("killed", 1, step, 2, NULL);
        }
        usleep((useconds_t)(round * 1531 % 60000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        CHECK(ckpt_find_latest(in_dir("killed"), &info, &e) == 1);
        for (int64_t step = 1; step <= info.step + 1; step++) {
            const char *path = in_dir("killed/checkpoints/step-%08lld", (long long)step);
            CHECK_MSG(!file_exists(path) || ckpt_check(path, NULL, &e) == 0, "%s", e.text);
        }
        CHECK(ckpt_prune(in_dir("killed"), &(struct ckpt_keep){.newest = 1}, 1, &e) == 0);
    }
}

/* Parses a manifest whose list of files is `files`, which may be any text. The manifest's digest
 * of its own text is correct. */
static int parse_said(const char *files, struct err *why)
{
    static struct manifest m;
    char text[4096], hex[SHA256_HEX];
    struct sha256 sha;
    int n = snprintf(text, sizeof text, "{\"version\":1,\"step\":1,\"epoch\":1,\"files\":[%s]",
                     files);
    sha256_init(&sha);
    sha256_add(&sha, text, (size_t)n);
    sha256_hex(&sha, hex);
    n += snprintf(text + n, sizeof text - (size_t)n, ",\"sha256\":\"%s\"}", hex);
    return manifest_parse(&m, text, (size_t)n, "m", why);
}

#define HEX64                  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ENTRY(path, size, hex) "{\"path\":\"" path "\",\"size\":" size ",\"sha256\":\"" hex "\"}"

/* Checks that a manifest is refused if one of its paths leads out of the directory, because a node
 * may send any manifest. */
static void test_manifest_said(void)
{
    static const char *const good[] = {"", ENTRY("a", "0", HEX64), ENTRY("hf/a..b", "9", HEX64),
                                       ENTRY("a", "1", HEX64) "," ENTRY("b", "1", HEX64)};
    static const char *const bad[] = {
        ENTRY("", "1", HEX64),
        ENTRY("/a", "1", HEX64),
        ENTRY("../a", "1", HEX64),
        ENTRY("a/..", "1", HEX64),
        ENTRY("a/../b", "1", HEX64),
        ENTRY("./a", "1", HEX64),
        ENTRY("a//b", "1", HEX64),
        ENTRY("a/", "1", HEX64),
        ENTRY("a\\nb", "1", HEX64),
        ENTRY("a", "-1", HEX64),
        ENTRY("a", "1125899906842625", HEX64),
        ENTRY("a", "1", "xyz"),
        ENTRY("a", "1", HEX64) "," ENTRY("a", "1", HEX64),
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_MSG(parse_said(good[i], &e) == 0, "%s: %s", good[i], e.text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(parse_said(bad[i], &e) < 0 && e.code == ERR_CORRUPT, "%s", bad[i]);
}

static void test_spec_digest(void)
{
    struct job_spec *s = malloc(sizeof *s);
    char a[SHA256_HEX], b[SHA256_HEX];
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    ckpt_spec_digest(s, a);
    s->parallel.layout = LAYOUT_ZIGZAG;
    s->resources.ranks = 7;
    s->checkpoint.keep = 9;
    s->memory.recompute = RECOMPUTE_FULL;
    ckpt_spec_digest(s, b);
    CHECK_STR(a, b); /* settings of how a job runs do not change the digest */
    s->optim.lr *= 1 + 1e-15;
    ckpt_spec_digest(s, b);
    CHECK(strcmp(a, b));
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->seed++;
    ckpt_spec_digest(s, b);
    CHECK(strcmp(a, b));
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->data.seq_len++;
    ckpt_spec_digest(s, b);
    CHECK(strcmp(a, b));
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->model.shape.n_layers++;
    ckpt_spec_digest(s, b);
    CHECK(strcmp(a, b));
    free(s);
}

/* Changes a field to a different value within its range. */
static void change(struct job_spec *spec, const struct field *f)
{
    const bool size = !strncmp(f->path, "model.config.", 13);
    void *v = (size ? (char *)&spec->model.shape : (char *)spec) + f->offset;
    switch (f->type) {
    case FIELD_INT: *(int64_t *)v += 1; break;
    case FIELD_DOUBLE: *(double *)v = *(double *)v * 1.5 + 0.25; break;
    case FIELD_STRING: spec_intern(spec, "other", 5, v); break;
    case FIELD_BOOL: *(int32_t *)v = !*(int32_t *)v; break;
    case FIELD_ENUM: *(int32_t *)v = *(int32_t *)v ? 0 : 1; break;
    default: *(int32_t *)v += 1; break;
    }
}

/* Checks the digests of jobs against those of the previous version, so that its checkpoints can
 * still be loaded. The digests depend on the contents and the order of a model's table of
 * sizes. */
static void test_digests_stay(void)
{
    static const char *const want[] = {
        "4f08a3829e66bfd1e13791b92b1de62ff78a5c4df9d4f9d0574ca7e2ada1325a",
        "de7a7fd2a6d9517f5188871ef532ea6714af8323fefc6eb907cd3dc431015770",
        "14c444302013fca1c0376817e62840884ee265c85a4bffad547e0a093d928044",
        "372f0dabbbd81c099ff3484cfe78d9e6f1a5d6412e58e8a532db51c70f5b969c"};
    static const char *const config[] = {
        "{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"intermediate_size\":128}",
        "{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":16,\"intermediate_size\":128,\"vocab_size\":300,"
        "\"max_position_embeddings\":77,\"rms_norm_eps\":1e-6,\"rope_theta\":123,"
        "\"tokenizer\":\"byte\"}",
        "{\"model_type\":\"minimax\",\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128,\"num_local_experts\":4,"
        "\"num_experts_per_tok\":2,\"layer_mask\":[1]}",
        "{\"model_type\":\"retnet\",\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":16,\"value_dim\":32,"
        "\"intermediate_size\":128,\"vocab_size\":300,\"max_position_embeddings\":77,"
        "\"rms_norm_eps\":1e-6,\"rope_theta\":10000}"};
    struct job_spec *s = malloc(sizeof *s);
    char have[SHA256_HEX];
    for (int i = 0; i < 4; i++) {
        spec_defaults(s);
        s->data.seq_len = 64;
        s->data.n_train = 1;
        s->train.steps = 5;
        CHECK(!spec_intern(s, "a", 1, &s->data.train[0].path));
        if (i % 2) CHECK(!spec_intern(s, "/m", 2, &s->model.path));
        CHECK_MSG(!config_take(s, config[i], strlen(config[i]), CONFIG_KEPT, &e), "%s", e.text);
        CHECK_MSG(!family_check(s, &e), "%s", e.text);
        ckpt_spec_digest(s, have);
        CHECK_STR(have, want[i]);
    }
    free(s);
}

/* Checks that the error names the field that makes the digests differ, with both values. */
static void test_spec_difference(void)
{
    struct job_spec *s = malloc(sizeof *s);
    static char json[CKPT_SPEC_SIZE];
    char before[SHA256_HEX], after[SHA256_HEX], state[256 + CKPT_SPEC_SIZE], path[CKPT_PATH_SIZE];
    int n_named = 0;
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->optim.lr = 0.125;
    s->data.seq_len = 77;
    ckpt_spec_digest(s, before);
    CHECK(!ckpt_spec_json(s, json));
    snprintf(state, sizeof state, "{\"version\":1,\"spec\":%s}", json);
    snprintf(path, sizeof path, "%s/train_state.json", in_dir("differs"));
    CHECK(!file_make_dir(in_dir("differs"), NULL) && !file_write(path, state, strlen(state), &e));
    for (const struct field *f = spec_fields; f->path; f++) {
        const struct job_spec kept = *s;
        change(s, f);
        ckpt_spec_digest(s, after);
        if (strcmp(before, after)) {
            CHECK(ckpt_spec_refuse(in_dir("differs"), s, &e) == -1 && e.code == ERR_CONFLICT);
            CHECK_MSG(!strcmp(e.field, f->path), "%s: names %s", f->path, e.field);
            n_named++;
        }
        *s = kept;
    }
    CHECK_MSG(n_named > 30, "%d fields", n_named);
    /* With checkpoint.changes, the learning rate, the length and the text may differ. The
     * optimizer and the model must not differ. */
    s->checkpoint.changes = 1;
    s->optim.lr = 0.5, s->train.steps = 9999, s->data.seq_len = 78, s->schedule.warmup_steps = 3;
    CHECK(!ckpt_spec_refuse(in_dir("differs"), s, &e));
    s->optim.beta2 = 0.5;
    CHECK(ckpt_spec_refuse(in_dir("differs"), s, &e) == -1);
    CHECK_MSG(!strncmp(e.field, "optim.betas", 11), "names %s", e.field);
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->data.seq_len = 77;
    s->optim.lr = 0.5;
    ckpt_spec_refuse(in_dir("differs"), s, &e);
    CHECK_MSG(strstr(e.text, "made with optim.lr 0.125, this job has 0.5"), "%s", e.text);
    s->optim.lr = 0.125;
    s->n_stages = 1;
    s->stages[0].from_step = 3;
    ckpt_spec_refuse(in_dir("differs"), s, &e);
    CHECK_MSG(!strcmp(e.field, "stages") && strstr(e.text, "stages none, "), "%s", e.text);
    /* A checkpoint of an older version has less information. */
    CHECK(!file_write(path, "{\"version\":1}", 13, &e));
    ckpt_spec_refuse(in_dir("differs"), s, &e);
    CHECK_STR(e.field, "checkpoint.resume");
    free(s);
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* Makes s a job that trains adapters, of rank 0 and alpha 0 if they are left out. */
static void adapted(struct job_spec *s, int64_t rank, double alpha, const char *target)
{
    spec_defaults(s);
    s->model.shape = shape;
    s->adapter.rank = rank;
    s->adapter.alpha = alpha;
    adapter_targets(s, &target, target ? 1 : 0);
}

/* Checks that a rank and an alpha that are left out are those that are used in place of them, and
 * that the products count, and not their names. */
static void test_spec_adapter(void)
{
    struct job_spec *s = malloc(sizeof *s);
    static const struct {
        int64_t rank;
        double alpha;
        const char *target;
        bool same;
    } of[] = {{8, 8, NULL, true},      {0, 8, NULL, true},  {8, 0, NULL, true},
              {0, 0, "q_proj", true},  {4, 8, NULL, false}, {8, 16, NULL, false},
              {4, 0, "q_proj", false}, {0, 4, NULL, false}};
    char want[SHA256_HEX], have[SHA256_HEX];
    adapted(s, 0, 0, NULL);
    ckpt_spec_digest(s, want);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        adapted(s, of[i].rank, of[i].alpha, of[i].target);
        ckpt_spec_digest(s, have);
        CHECK_MSG(!strcmp(want, have) == of[i].same, "case %zu", i);
    }
    s->adapter.type = ADAPTER_NONE;
    s->model.shape.adapter.rank = 0;
    ckpt_spec_digest(s, have);
    CHECK(strcmp(want, have));
    free(s);
}

/* Checks that errors about a checkpoint of adapters name a directory that it has. */
static void test_adapter_remedy(void)
{
    struct job_spec *s = malloc(sizeof *s);
    static char json[CKPT_SPEC_SIZE], state[256 + CKPT_SPEC_SIZE], want[CKPT_PATH_SIZE + 64];
    char path[CKPT_PATH_SIZE];
    adapted(s, 0, 0, NULL);
    CHECK(!ckpt_spec_json(s, json));
    snprintf(state, sizeof state, "{\"version\":1,\"spec\":%s}", json);
    snprintf(path, sizeof path, "%s/train_state.json", in_dir("adapted"));
    CHECK(!file_make_dir(in_dir("adapted"), &e) && !file_make_dir(in_dir("adapted/adapter"), &e));
    CHECK(!file_write(path, state, strlen(state), &e));
    snprintf(want, sizeof want, "model.adapter %s/adapter", in_dir("adapted"));
    s->optim.lr *= 2;
    CHECK(ckpt_spec_refuse(in_dir("adapted"), s, &e) == -1);
    CHECK_MSG(!strcmp(e.field, "optim.lr") && strstr(e.text, want), "%s: %s", e.field, e.text);
    adapted(s, 4, 0, NULL);
    CHECK(ckpt_spec_refuse(in_dir("adapted"), s, &e) == -1);
    CHECK_MSG(strstr(e.text, "made with adapter.rank 8, this job has 4") && !strstr(e.text, "/hf"),
              "%s", e.text);
    CHECK(!file_write(path, "{\"version\":1}", 13, &e));
    snprintf(want, sizeof want, "set model.adapter to %s/adapter", in_dir("adapted"));
    CHECK(ckpt_spec_refuse(in_dir("adapted"), s, &e) == -1);
    CHECK_MSG(strstr(e.text, want), "%s", e.text);
    free(s);
}

/* Checks that a checkpoint of adapters has the digest of their base, and is not loaded for a job
 * with another base. */
static void test_adapter_base(void)
{
    struct job_spec *s = malloc(sizeof *s);
    struct base_id own = {"/models/first", "model.path", ""};
    struct ckpt_info info;
    struct ckpt_state state = {.step = 3}, got;
    char path[CKPT_PATH_SIZE + 64];
    adapted(s, 2, 0, NULL);
    float *x = calloc((size_t)param_count(&s->model.shape), sizeof *x);
    if (!x) abort();
    const struct model_shape *const m = &s->model.shape;
    struct ckpt_arrays a = {.params = x, .dtype = DT_F32, .m = x, .v = x, .base_id = &own};
    struct ckpt_arrays only = {.base_id = &own};
    memset(own.sha256, 'a', SHA256_HEX - 1);
    CHECK_MSG(!ckpt_save(in_dir("based"), 1, m, &a, &state, &info, &e), "%s", e.text);
    CHECK_MSG(!checkpoint_load(info.path, m, &only, &got, &e), "%s", e.text);
    memset(own.sha256, 'b', SHA256_HEX - 1);
    snprintf(own.name, sizeof own.name, "/models/second");
    e = (struct err){0};
    CHECK(checkpoint_load(info.path, m, &only, &got, &e) == -1 && e.code == ERR_CONFLICT);
    CHECK_MSG(!strcmp(e.field, "model.path") && strstr(e.text, "/models/first") &&
                  strstr(e.text, "/models/second"),
              "%s: %s", e.field, e.text);
    CHECK(got.step == 3); /* the caller may compare the jobs */
    /* The manifest covers the file. */
    snprintf(path, sizeof path, "%s/adapter/" BASE_ID_FILE, info.path);
    CHECK(!unlink(path));
    CHECK(ckpt_check(info.path, NULL, &e) == -1 && e.code == ERR_CORRUPT);
    free(x);
    free(s);
}

int main(void)
{
    scratch_dir(dir, sizeof dir, "ckpt");
    /* leaves out warnings, because the damage below is on purpose */
    setenv("SEQD_LOG", "error", 1);
    log_init("test_ckpt");
    RUN(test_round_trip);
    RUN(test_checked);
    RUN(test_resume_identical);
    RUN(test_damage);
    RUN(test_large_files);
    RUN(test_state_fields);
    RUN(test_other_model);
    RUN(test_two_epochs);
    RUN(test_prune);
    RUN(test_prune_policy);
    RUN(test_names);
    RUN(test_write_fails);
    RUN(test_killed);
    RUN(test_manifest_said);
    RUN(test_spec_digest);
    RUN(test_digests_stay);
    RUN(test_spec_difference);
    RUN(test_spec_adapter);
    RUN(test_adapter_remedy);
    RUN(test_adapter_base);
    file_remove(dir, NULL);
    return test_done("ckpt");
}
