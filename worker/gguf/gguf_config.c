/* gguf_config.c: reads the sizes of a model by their keys in GGUF, and writes them by their
 * keys in transformers. */
#include "worker/gguf/gguf_config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "worker/gguf/gguf_names.h"

/* The accepted keys. The name of the architecture, with which a key begins, is left out. All
 * other keys are refused. */
static const struct {
    const char *name;
    bool windowed; /* set if only architectures with sliding windows may have this key */
    bool zero;     /* set if the value of the key must be 0 */
} known[] = {
    {"vocab_size", false, false},
    {"context_length", false, false},
    {"embedding_length", false, false},
    {"block_count", false, false},
    {"feed_forward_length", false, false},
    {"attention.head_count", false, false},
    {"attention.head_count_kv", false, false},
    {"attention.key_length", false, false},
    {"attention.value_length", false, false},
    {"attention.layer_norm_rms_epsilon", false, false},
    {"attention.sliding_window", true, false},
    {"attention.sliding_window_pattern", true, false},
    {"rope.dimension_count", false, false},
    {"rope.freq_base", false, false},
    {"rope.freq_base_swa", true, false},
    {"rope.scaling.type", false, false},
    {"rope.scaling.factor", false, false},
    {"rope.scaling.original_context_length", false, false},
    {"rope.scaling.finetuned", false, false},
    {"final_logit_softcapping", true, true},
    {"attn_logit_softcapping", true, true},
    {"expert_count", false, true},
    {"expert_used_count", false, true},
    {"pooling_type", false, true},
};
enum { KNOWN = sizeof known / sizeof *known, MOST_LAYERS = 65536, ROPE_COLUMNS = 1024 };

struct gguf_config {
    const struct gguf *g;
    const struct gguf_arch *arch;
    struct err *e;
    int64_t width, layers, heads, kv_heads, head_dim, ffn, context;
};

/* Finds a key of the architecture. The parameter `name` gets the key with the name of the
 * architecture. */
static const struct gguf_key *find(const struct gguf_config *c, const char *key,
                                   char name[GGUF_NAME_SIZE])
{
    snprintf(name, GGUF_NAME_SIZE, "%s.%s", c->arch->name, key);
    return gguf_find(c->g, name);
}

static int wrong(struct gguf_config *c, const char *name, const char *want)
{
    return err_set(c->e, ERR_CORRUPT, "%s: %s is not %s: fetch the file again", gguf_path(c->g),
                   name, want);
}

/* Sets the error for a file in which a required key is missing. A key is required if it has no
 * default. llama.cpp refuses such a file, too. */
static int missing_key(struct gguf_config *c, const char *name)
{
    return err_set(c->e, ERR_CORRUPT,
                   "%s: %s is missing, and no default stands for it: make the file again from the "
                   "published model by convert_hf_to_gguf.py",
                   gguf_path(c->g), name);
}

/* Reads an integer. An array must have the same value for all layers. The parameter `missing`
 * is the default of the key. If it is negative, the file must have the key. */
static int whole(struct gguf_config *c, const char *key, int64_t missing, int64_t *out)
{
    char name[GGUF_NAME_SIZE];
    const struct gguf_key *k = find(c, key, name);
    int64_t v;
    *out = missing;
    if (!k && missing >= 0) return 0;
    if (!k) return missing_key(c, name);
    for (int64_t i = 0; i < k->n; i++) {
        if (!gguf_int(k, i, &v) || v < 0 || v > INT32_MAX)
            return wrong(c, name, "a whole number below 2147483648");
        if (i && v != *out)
            return err_set(c->e, ERR_UNSUPPORTED,
                           "%s: %s differs between layers, and all layers of a model are alike "
                           "here: use a model whose layers are",
                           gguf_path(c->g), name);
        *out = v;
    }
    return k->n ? 0 : wrong(c, name, "an array of numbers");
}

/* Reads a number. If the key is missing, *out is 0. */
static int real(struct gguf_config *c, const char *key, double *out)
{
    char name[GGUF_NAME_SIZE];
    const struct gguf_key *k = find(c, key, name);
    *out = 0;
    if (!k) return 0;
    return k->array || !gguf_real(k, 0, out) ? wrong(c, name, "a finite number") : 0;
}

/* Reads a number above 0. The parameter `missing` is the default of the key. If it is 0, the
 * file must have the key. */
static int positive(struct gguf_config *c, const char *key, double missing, double *out)
{
    char name[GGUF_NAME_SIZE];
    const struct gguf_key *k = find(c, key, name);
    *out = missing;
    if (!k) return missing > 0 ? 0 : missing_key(c, name);
    return k->array || !gguf_real(k, 0, out) || *out <= 0 ? wrong(c, name, "a number above 0") : 0;
}

static int check_key(struct gguf_config *c, const struct gguf_key *k, const char *rest)
{
    double v = 0;
    int i = 0;
    while (i < KNOWN && (strcmp(rest, known[i].name) || (known[i].windowed && !c->arch->windowed)))
        i++;
    if (i < KNOWN && !known[i].zero) return 0;
    if (i < KNOWN && !k->array && gguf_real(k, 0, &v) && v == 0) return 0;
    return err_set(c->e, ERR_UNSUPPORTED,
                   "%s: %s%s: give the published directory with its safetensors, which says what "
                   "is computed",
                   gguf_path(c->g), k->name,
                   i < KNOWN ? " is not 0, and that is not read from GGUF files"
                             : " is a key that is not known here");
}

static int check_keys(struct gguf_config *c)
{
    const size_t n = strlen(c->arch->name);
    for (int i = 0; i < gguf_keys(c->g); i++) {
        const struct gguf_key *k = gguf_key(c->g, i);
        if (!strncmp(k->name, c->arch->name, n) && k->name[n] == '.' &&
            check_key(c, k, k->name + n + 1) < 0)
            return -1;
    }
    return 0;
}

static int read_sizes(struct gguf_config *c)
{
    int64_t value, rope;
    if (whole(c, "embedding_length", -1, &c->width) < 0 ||
        whole(c, "block_count", -1, &c->layers) < 0 ||
        whole(c, "feed_forward_length", -1, &c->ffn) < 0 ||
        whole(c, "context_length", -1, &c->context) < 0 ||
        whole(c, "attention.head_count", -1, &c->heads) < 0)
        return -1;
    if (!c->heads || !c->width || !c->layers || c->layers > MOST_LAYERS)
        return err_set(
            c->e, ERR_CORRUPT,
            "%s: embedding_length %lld, block_count %lld or attention.head_count %lld is "
            "0 or too large: fetch the file again",
            gguf_path(c->g), (long long)c->width, (long long)c->layers, (long long)c->heads);
    if (whole(c, "attention.head_count_kv", c->heads, &c->kv_heads) < 0 ||
        whole(c, "attention.key_length", c->width / c->heads, &c->head_dim) < 0 ||
        whole(c, "attention.value_length", c->head_dim, &value) < 0 ||
        whole(c, "rope.dimension_count", c->head_dim, &rope) < 0)
        return -1;
    if (!c->kv_heads || value != c->head_dim || rope != c->head_dim)
        return err_set(c->e, ERR_UNSUPPORTED,
                       "%s: heads have %lld values, %lld of them turned by RoPE, and keys have "
                       "%lld: all must be equal: give the published directory with its safetensors",
                       gguf_path(c->g), (long long)value, (long long)rope, (long long)c->head_dim);
    return 0;
}

/* ---- RoPE ------------------------------------------------------------------------------------ */

struct rope_rule {
    char type[16]; /* name of the rule in transformers; "" if there is no rule */
    double factor, original;
};

static int read_rule(struct gguf_config *c, struct rope_rule *r)
{
    char name[GGUF_NAME_SIZE];
    int64_t original;
    *r = (struct rope_rule){0};
    if (real(c, "rope.scaling.factor", &r->factor) < 0 ||
        whole(c, "rope.scaling.original_context_length", 0, &original) < 0)
        return -1;
    r->original = (double)original;
    /* without this key, llama.cpp only divides positions by the factor */
    if (!find(c, "rope.scaling.type", name)) {
        if (r->factor > 0 && r->factor != 1) memcpy(r->type, "linear", sizeof "linear");
        return 0;
    }
    if (!gguf_word(c->g, name, r->type, sizeof r->type)) return wrong(c, name, "a short word");
    if (!strcmp(r->type, "none")) *r->type = 0;
    if (!*r->type || !strcmp(r->type, "linear") || !strcmp(r->type, "yarn")) return 0;
    return err_set(c->e, ERR_UNSUPPORTED,
                   "%s: %s is \"%s\", and none, linear and yarn are read from GGUF files: give the "
                   "published directory with its safetensors",
                   gguf_path(c->g), name, r->type);
}

/* Returns the number by which llama3's rule divides a frequency. The parameter is the
 * wavelength of the frequency. low_freq_factor is 1, and high_freq_factor is 4. */
static double llama3_factor(const struct rope_rule *r, double wave)
{
    const double turns = r->original / wave, smooth = (turns - 1) / 3;
    if (turns > 4) return 1;
    if (turns < 1) return r->factor;
    return 1 / ((1 - smooth) / r->factor + smooth);
}

static int read_factors(struct gguf_config *c, const struct gguf_tensor *t, float *out, int n)
{
    for (int64_t at = 0; at < n * 4;) {
        const ssize_t got = pread(gguf_fd(c->g), (char *)out + at, (size_t)(n * 4 - at),
                                  t->offset + at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_errno(c->e, "read %s of %s", t->name, gguf_path(c->g));
        if (got == 0)
            return err_set(c->e, ERR_CORRUPT, "%s: %s: the file became shorter: fetch it again",
                           gguf_path(c->g), t->name);
        at += got;
    }
    return 0;
}

/* Finds the parameters of the rule from which the table rope_freqs.weight was computed. It is
 * the rule llama3. The factor and the original length are computed from the values of the
 * table. */
static int find_rule(struct gguf_config *c, double theta, struct rope_rule *r)
{
    const struct gguf_tensor *t = gguf_find_tensor(c->g, "rope_freqs.weight");
    float table[ROPE_COLUMNS / 2];
    const int n = (int)(c->head_dim / 2);
    bool same = t && !*r->type && t->dtype == GGUF_DT_F32 && t->n_dims == 1 && n > 0 &&
                c->head_dim <= ROPE_COLUMNS && t->dims[0] == n;
    if (!t) return 0;
    if (same && read_factors(c, t, table, n) < 0) return -1;
    *r = (struct rope_rule){"llama3", 1, 8192};
    for (int i = 0; same && i < n; i++)
        if (table[i] > r->factor) r->factor = table[i];
    for (int i = 0; same && i < n; i++) {
        const double wave = 2 * M_PI * pow(theta, 2.0 * i / (double)c->head_dim);
        const double smooth = (1 / table[i] - 1 / r->factor) / (1 - 1 / r->factor);
        if (table[i] <= 1.0001 || table[i] >= 0.999 * r->factor) continue;
        r->original = round(wave * (smooth * 3 + 1));
        break;
    }
    for (int i = 0; same && i < n; i++) {
        const double wave = 2 * M_PI * pow(theta, 2.0 * i / (double)c->head_dim);
        same = fabs(table[i] / llama3_factor(r, wave) - 1) < 1e-3;
    }
    if (same && r->factor > 1 && r->original >= 1 && r->original < 1e9) return 0;
    return err_set(c->e, ERR_UNSUPPORTED,
                   "%s: rope_freqs.weight is not the table of llama3's rule with low_freq_factor 1 "
                   "and high_freq_factor 4: give the published directory with its safetensors",
                   gguf_path(c->g));
}

static void write_rule(const struct rope_rule *r, struct jwrite *w)
{
    const bool llama3 = !strcmp(r->type, "llama3");
    if (!*r->type) return;
    jwrite_object(w, "rope_scaling");
    jwrite_str(w, "rope_type", r->type);
    jwrite_double(w, "factor", r->factor);
    if (llama3) {
        jwrite_double(w, "low_freq_factor", 1);
        jwrite_double(w, "high_freq_factor", 4);
    }
    if (r->original > 0 && strcmp(r->type, "linear"))
        jwrite_int(w, "original_max_position_embeddings", (int64_t)r->original);
    jwrite_end(w);
}

static int write_rope(struct gguf_config *c, struct jwrite *w)
{
    struct rope_rule r;
    /* If the key is absent, llama.cpp uses 10000, and so does transformers. For Gemma 3 the
     * defaults of llama.cpp and of transformers differ, so the file must have the key. */
    const double missing = c->arch->windowed ? 0 : 10000;
    double theta;
    if (positive(c, "rope.freq_base", missing, &theta) < 0 || read_rule(c, &r) < 0) return -1;
    if (find_rule(c, theta, &r) < 0) return -1;
    jwrite_double(w, "rope_theta", theta);
    write_rule(&r, w);
    return 0;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Writes Gemma 3's window, the RoPE base of the layers with a window, and the scale of the
 * scores. In the largest Gemma 3 model, the scale is computed from the width of the model. In
 * all other models it is computed from the size of a head. */
static int write_windows(struct gguf_config *c, struct jwrite *w)
{
    enum { PATTERN = 6, LARGEST = 62 };
    int64_t window, pattern;
    double base;
    if (!c->arch->windowed) return 0;
    if (whole(c, "attention.sliding_window", -1, &window) < 0 ||
        whole(c, "attention.sliding_window_pattern", PATTERN, &pattern) < 0 ||
        positive(c, "rope.freq_base_swa", 10000, &base) < 0)
        return -1;
    jwrite_int(w, "sliding_window", window);
    jwrite_int(w, "sliding_window_pattern", pattern);
    jwrite_double(w, "rope_local_base_freq", base);
    jwrite_int(w, "query_pre_attn_scalar",
               c->layers == LARGEST ? c->width / c->heads : c->head_dim);
    return 0;
}

/* ---- the object ------------------------------------------------------------------------------ */

static bool has_tensor(const struct gguf_config *c, const char *name)
{
    return gguf_find_tensor(c->g, name);
}

/* Writes the number of rows of the embedding. The embedding may have more rows than the
 * tokenizer has ids. */
static int write_vocab(struct gguf_config *c, struct jwrite *w)
{
    const struct gguf_tensor *t = gguf_find_tensor(c->g, "token_embd.weight");
    if (!t || t->n_dims != 2)
        return err_set(c->e, ERR_CORRUPT,
                       "%s: token_embd.weight is missing or not a matrix: fetch the file again",
                       gguf_path(c->g));
    jwrite_int(w, "vocab_size", t->dims[0]);
    jwrite_bool(w, "tie_word_embeddings", !has_tensor(c, "output.weight"));
    return 0;
}

static void write_biases(struct gguf_config *c, struct jwrite *w)
{
    if (strcmp(c->arch->name, "qwen2")) /* the key is not written for qwen2, because qwen2
                                         * always has biases of q, k and v */
        jwrite_bool(w, "attention_bias", has_tensor(c, "blk.0.attn_q.bias"));
    if (!strcmp(c->arch->name, "llama"))
        jwrite_bool(w, "mlp_bias", has_tensor(c, "blk.0.ffn_gate.bias"));
}

int gguf_config_write(const struct gguf *g, struct jwrite *w, struct err *e)
{
    struct gguf_config c = {.g = g, .arch = gguf_arch(g, e), .e = e};
    double eps;
    if (!c.arch || check_keys(&c) < 0 || read_sizes(&c) < 0 ||
        positive(&c, "attention.layer_norm_rms_epsilon", 0, &eps) < 0)
        return -1;
    jwrite_object(w, NULL);
    jwrite_array(w, "architectures");
    jwrite_str(w, NULL, c.arch->class);
    jwrite_end(w);
    jwrite_str(w, "model_type", c.arch->model_type);
    jwrite_int(w, "hidden_size", c.width);
    jwrite_int(w, "intermediate_size", c.ffn);
    jwrite_int(w, "num_hidden_layers", c.layers);
    jwrite_int(w, "num_attention_heads", c.heads);
    jwrite_int(w, "num_key_value_heads", c.kv_heads);
    jwrite_int(w, "head_dim", c.head_dim);
    jwrite_int(w, "max_position_embeddings", c.context);
    jwrite_double(w, "rms_norm_eps", eps);
    if (write_vocab(&c, w) < 0 || write_rope(&c, w) < 0 || write_windows(&c, w) < 0) return -1;
    write_biases(&c, w);
    jwrite_end(w);
    return 0;
}
