/* Functions for values of config.json that the tables of many families use. They are readers,
 * checks that a key does not ask for an unsupported computation, and writers of values that are
 * the same in all files. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/core/utf8.h"
#include "worker/family/config_table.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* Writes a string or a number in the form that it has in the text. */
static void quote_token(const struct jread *j, const char *mark, char out[CONFIG_QUOTE])
{
    enum { SHOWN = 48 };
    size_t n = j->len;
    const bool cut = n > SHOWN;
    if (cut)
        for (n = SHOWN; n && ((unsigned char)j->text[n] & 0xc0) == 0x80;) n--;
    snprintf(out, CONFIG_QUOTE, "%s%.*s%s%s", mark, (int)n, j->text, cut ? "..." : "", mark);
    utf8_show(out);
}

const char *config_quote(const struct config *c, char out[CONFIG_QUOTE])
{
    const struct jread *j = &c->j;
    switch (j->p > j->start ? j->p[-1] : 0) {
    case '"': quote_token(j, "\"", out); return out;
    case '{': return "an object";
    case '[': return "an array";
    case 'l': return "null";
    case 'e': return j->p[-2] == 'u' ? "true" : "false";
    default: quote_token(j, "", out); return out;
    }
}

int config_wrong(struct config *c, const char *key, const char *want)
{
    char value[CONFIG_QUOTE];
    if (c->j.err.code) return config_invalid(c, key, want);
    return config_error(c, ERR_INVALID, key, "%s must be %s, not %s", key, want,
                        config_quote(c, value));
}

int config_read_real(struct config *c, const char *key, double min, double max, double *out)
{
    char want[96];
    double v;
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    snprintf(want, sizeof want, "a number from %.15g to %.15g", min, max);
    if (t != J_NUMBER || jread_double(&c->j, &v) < 0 || !(v >= min && v <= max))
        return config_wrong(c, key, want);
    *out = v;
    return 0;
}

/* Reads an integer. A number such as 64.0 is accepted as an integer. */
static int whole(struct jread *j, int64_t *out)
{
    double v;
    if (jread_int(j, out) == 0) return 0;
    if (jread_double(j, &v) < 0 || !(fabs(v) <= 9007199254740992.0) || v != nearbyint(v)) return -1;
    *out = (int64_t)v;
    return 0;
}

int config_read_int(struct config *c, const char *key, int64_t min, int64_t max, int64_t *out)
{
    char want[96];
    int64_t v;
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    snprintf(want, sizeof want, "an integer from %lld to %lld", (long long)min, (long long)max);
    if (t != J_NUMBER || whole(&c->j, &v) < 0 || v < min || v > max)
        return config_wrong(c, key, want);
    *out = v;
    return 0;
}

int config_read_bool(struct config *c, const char *key, bool *out)
{
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_TRUE && t != J_FALSE) return config_wrong(c, key, "true or false");
    *out = t == J_TRUE;
    return 0;
}

/* ---- keys that must not ask for an unsupported computation ----------------------------------- */

int config_want_false(struct config *c, const char *key)
{
    bool v = false;
    if (config_read_bool(c, key, &v) < 0) return -1;
    return v ? config_refuse(c, key, "true is not supported") : 0;
}

int config_want_true(struct config *c, const char *key)
{
    bool v = true;
    if (config_read_bool(c, key, &v) < 0) return -1;
    return v ? 0 : config_refuse(c, key, "false is not supported");
}

int config_ignore(struct config *c, const char *key)
{
    return jread_skip(&c->j) < 0 ? config_invalid(c, key, "a value") : 0;
}

int config_want_null(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t == J_ERROR || jread_skip(&c->j) < 0) return config_invalid(c, key, "null");
    return config_refuse(c, key, "only null is supported");
}

/* Reads quantization_config. `only` is the method that is accepted, or NULL if no method is
 * accepted. */
static int read_quantization(struct config *c, const char *key, const char *only)
{
    char method[32] = "", why[112];
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_OBJECT) {
        if (t == J_ERROR || jread_skip(&c->j) < 0)
            return config_invalid(c, key, "an object or null");
        return config_refuse(c, key, "only null, or an object with quant_method, has a meaning");
    }
    while ((t = jread_next(&c->j)) == J_KEY) {
        const bool named = jread_is(&c->j, "quant_method");
        if (!named && jread_skip(&c->j) < 0) break;
        if (named && jread_next(&c->j) != J_STRING)
            return config_invalid(c, key, "an object whose quant_method is a string");
        if (named && jread_copy(&c->j, method, sizeof method) < 0) method[0] = 0;
    }
    if (t != J_OBJECT_END) return config_invalid(c, key, "an object");
    if (only && !strcmp(method, only)) return 0;
    for (char *p = method; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '"') *p = '?';
    snprintf(why, sizeof why, "quant_method \"%s\" is not supported: save the weights as bf16%s",
             method, only ? ", or in MXFP4" : "");
    return config_refuse_mended(c, key, why);
}

int config_want_plain(struct config *c, const char *key)
{
    return read_quantization(c, key, NULL);
}

int config_want_plain_or_mxfp4(struct config *c, const char *key)
{
    return read_quantization(c, key, "mxfp4");
}

static int want_number(struct config *c, const char *key, double only)
{
    double v = only;
    if (config_read_real(c, key, -1e300, 1e300, &v) < 0) return -1;
    if (v == only) return 0;
    return config_refuse(c, key, only == 0 ? "only 0 is supported" : "only 1 is supported");
}

int config_want_zero(struct config *c, const char *key)
{
    return want_number(c, key, 0);
}

int config_want_one(struct config *c, const char *key)
{
    return want_number(c, key, 1);
}

static const struct {
    const char *word;
    enum act_id act;
} act_names[] = {{"silu", ACT_SILU},          {"swish", ACT_SILU},
                 {"gelu", ACT_GELU},          {"gelu_tanh", ACT_GELU_TANH},
                 {"gelu_new", ACT_GELU_TANH}, {"gelu_pytorch_tanh", ACT_GELU_TANH},
                 {"relu", ACT_RELU},          {"tanh", ACT_TANH}};

int config_read_act(struct config *c, const char *key)
{
    if (jread_next(&c->j) != J_STRING) return config_wrong(c, key, "a string");
    if (c->form != CONFIG_FILE && jread_is(&c->j, "identity")) return 0; /* the family's default */
    for (size_t i = 0; i < sizeof act_names / sizeof *act_names; i++) {
        if (!jread_is(&c->j, act_names[i].word)) continue;
        c->m->act = act_names[i].act;
        return 0;
    }
    return config_refuse_value(c, key, "gelu, gelu_new, relu, silu, tanh");
}

void config_write_act(struct jwrite *w, const char *key, const struct model_shape *m)
{
    static const char *const words[ACT_N] = {[ACT_SILU] = "silu",
                                             [ACT_GELU] = "gelu",
                                             [ACT_GELU_TANH] = "gelu_pytorch_tanh",
                                             [ACT_RELU] = "relu",
                                             [ACT_TANH] = "tanh"};
    const char *word = m->act >= 0 && m->act < ACT_N ? words[m->act] : NULL;
    jwrite_str(w, key, word ? word : "silu");
}

int config_want_silu(struct config *c, const char *key)
{
    if (jread_next(&c->j) != J_STRING) return config_wrong(c, key, "a string");
    if (jread_is(&c->j, "silu") || jread_is(&c->j, "swish")) return 0;
    return config_refuse_value(c, key, "\"silu\"");
}

/* ---- values that are the same in all written files ------------------------------------------- */

void config_write_false(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, false);
}

void config_write_true(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, true);
}

void config_write_null(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_null(w, key);
}

void config_write_zero(struct jwrite *w, const char *key, const struct model_shape *m)
{
    /* 0.0, because the package requires a float and refuses the integer 0 */
    jwrite_raw(w, key, "0.0");
}

void config_write_silu(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_str(w, key, "silu");
}

int config_want_word(struct config *c, const char *key, const char *word)
{
    char only[64];
    const enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_STRING) return config_wrong(c, key, "a string");
    snprintf(only, sizeof only, "\"%s\"", word);
    return jread_is(&c->j, word) ? 0 : config_refuse_value(c, key, only);
}

/* ---- lists with an entry for every layer ----------------------------------------------------- */

int config_read_list(struct config *c, const char *key, int (*read)(struct config *, enum jtok))
{
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_ARRAY) return config_invalid(c, key, "an array with an element for every layer");
    for (c->n_flags = 0; (t = jread_next(&c->j)) != J_ARRAY_END; c->n_flags++) {
        const int rc = c->n_flags < HF_MAX_LAYERS ? read(c, t) : 1;
        if (rc < 0) return -1;
        if (rc > 0) return config_invalid(c, key, "an array with an element for every layer");
    }
    return 0;
}

int config_check_list(struct config *c, const char *key)
{
    if (!c->n_flags || c->n_flags == c->m->n_layers) return 0;
    return config_error(c, ERR_INVALID, key, "%s has %lld elements for %d layers", key,
                        (long long)c->n_flags, c->m->n_layers);
}

void config_mark(int64_t mask[SHAPE_MASKS], int64_t l)
{
    if (l < 32 * SHAPE_MASKS) mask[l / 32] |= (int64_t)1 << (l % 32);
}

void config_mark_layer(struct model_shape *m, int64_t l, bool special)
{
    if (special) config_mark(m->layer_mask, l);
}
