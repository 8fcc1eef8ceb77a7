/* config_table.h: the tables by which config.json is read and written, family by family.
 * worker/family, worker/hf and worker/plan/check_rope.c include it.
 *
 * A family's row has a struct hf_family. It lists the family's own sizes with the keys of its
 * files (fields) and the keys that give several sizes or none (specials), and has a check of sizes
 * that depend on each other (finish). Keys that change nothing are listed (config_house.c, and
 * `nothing` of the family) and skipped. A key that is in no table, or that asks for a computation
 * that is not supported, is refused; one error names all of these. A key, and the absence of a
 * key, means the same as in transformers for that model_type. */
#ifndef SEQD_FAMILY_CONFIG_TABLE_H
#define SEQD_FAMILY_CONFIG_TABLE_H

#include "api/core/faults.h"
#include "api/core/field.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "worker/family/config.h"
#include "worker/family/family.h"

#define HF_MAX_LAYERS 1024
#define HF_MAX_SEEN   96
#define HF_CLASSES    3

struct config {
    struct jread j;
    enum config_form form;
    struct faults *faults; /* gets every fault; if it is NULL, the first fault ends the reading */
    bool job;              /* errors name fields of a job, not the file at path */
    const char *path;      /* for error texts */
    struct model_shape *m;
    const struct hf_family *family;
    const char *seen[HF_MAX_SEEN]; /* keys and fields that have been read so far */
    int n_seen;
    struct err *e;
    /* Values that give a size only together with another key. They are 0 unless the file has
     * them. */
    double theta;              /* rope_theta of a RoPE object */
    double expand_k, expand_v; /* width of all heads together, in units of hidden_size */
    double mlp_ratio;          /* width of the MLP, in units of hidden_size */
    double partial_rotary;     /* share of a head's columns that RoPE rotates */
    int64_t original;          /* original_max_position_embeddings outside the RoPE object */
    bool rope_object;          /* one of the two objects of RoPE has been read */
    int64_t mixer_width;       /* width of all heads together */
    int64_t n_flags;           /* length of the list that has one element for each layer */
    /* number of values predicted for each channel: 1, or 2 with a variance */
    int64_t sigma;
    int type; /* index of the file's model in family->models */
    /* the window, and the number of layers at the start that do not have it */
    int64_t window, full_first;
    bool window_on;      /* use_sliding_window */
    int64_t sparse_step; /* decoder_sparse_step */
    char refused[400];   /* "key: why;\nkey: why": config_refuse */
    /* the remedy of the last refusal, with its colon; "" means that there is none */
    const char *fix;
    int n_refused;
    bool unknown;         /* a key is not known */
    int64_t n_rope_flags; /* length of the list of layers with RoPE */
    int64_t n_windowed;   /* number of layers to which layer_types gives a window */
    /* wrapper whose text_config is read; NULL if there is none */
    const struct hf_wrapper *wrapper;
    /* 1 + tie_word_embeddings of the wrapper; 0 if it does not have that key */
    int tied;
};

/* One size of the family. */
struct hf_field {
    const char *name; /* name of a row of shape_fields, which is also accepted as a key */
    const char *key;  /* key in the family's files; NULL if it is the same as name */
    enum {
        HF_NEEDED = 1,    /* a file must have it, and not as null, unless hf_model.absent has it */
        HF_UNWRITTEN = 2, /* a special key (hf_special) gives it */
        HF_FIXED = 4,     /* the family has only one value, which files omit; it is not compared */
        HF_DERIVED = 8    /* null in a file means that the size is derived from other sizes */
    } flags;
};

struct hf_special {
    const char *key;
    /* Reads the value from c->j. NULL if the key is only written. */
    int (*read)(struct config *c, const char *key);
    /* Writes the key. NULL if the key is only read. */
    void (*write)(struct jwrite *w, const char *key, const struct model_shape *m);
};

/* The value of a size that a file does not give, which is the default of the package's class. */
struct hf_absent {
    const char *name; /* name of a row of shape_fields; NULL in the last entry */
    double value;
};

/* A model_type of the family's files. A file whose architectures, auto_map or _class_name names
 * another class has another model, and is refused. */
struct hf_model {
    const char *type; /* a value of model_type; NULL in the last entry */
    /* Values of sizes whose keys are absent. Sizes that are not listed are then 0. */
    const struct hf_absent *absent;
    /* Classes that compute this model, including base classes. The first one is written as
     * architectures. */
    const char *classes[HF_CLASSES + 1];
};

/* A model that reads pictures and contains a text model. Only the text model is computed, which is
 * the object text_config and its tensors. The rest of the files is copied (worker/hf). */
struct hf_wrapper {
    struct hf_model model;
    const char *text; /* model_type of its text_config */
    /* keys of the half that is not computed, which are skipped with any value; NULL-terminated */
    const char *const *keys;
};

struct hf_family {
    const struct hf_field *fields;     /* ends with name NULL */
    const struct hf_special *specials; /* ends with key NULL */
    const struct hf_model *models;     /* the first one has the family's own model_type */
    /* Called after the last key. NULL if no function is to be called. */
    int (*finish)(struct config *c);
    /* Returns the index in `models` of the row that is written for these sizes. NULL means index
     * 0. */
    int (*model)(const struct model_shape *m);
    /* further keys that change nothing, NULL-terminated; NULL if there are none */
    const char *const *nothing;
};

/* HF_SIZES has the sizes that nearly all files have. HF_NEVER has the keys whose value must be
 * null. */
/* clang-format off */
#define HF_SIZES                                                                                   \
    {"hidden_size", NULL, HF_NEEDED}, {"num_hidden_layers", NULL, HF_NEEDED},                      \
    {"num_attention_heads", NULL, HF_NEEDED}, {"intermediate_size", NULL, HF_NEEDED},              \
    {"vocab_size", NULL, HF_NEEDED}, {"max_position_embeddings", NULL, 0},                         \
    {"tie_word_embeddings", NULL, 0}
/* Defaults that nearly all classes have for keys that a file lacks. */
#define HF_ABSENT(max_pos, eps, theta)                                                             \
    {"max_position_embeddings", max_pos}, {"rms_norm_eps", eps}, {"rope_theta", theta}
#define HF_ABSENT_SIZES(width, layers, heads, ffn, vocab)                                          \
    {"hidden_size", width}, {"num_hidden_layers", layers}, {"num_attention_heads", heads},         \
    {"intermediate_size", ffn}, {"vocab_size", vocab}
#define HF_MASKS                                                                                   \
    {"layer_mask.0", NULL, HF_UNWRITTEN}, {"layer_mask.1", NULL, HF_UNWRITTEN},                    \
    {"layer_mask.2", NULL, HF_UNWRITTEN}, {"layer_mask.3", NULL, HF_UNWRITTEN},                    \
    {"layer_mask.4", NULL, HF_UNWRITTEN}, {"layer_mask.5", NULL, HF_UNWRITTEN},                    \
    {"layer_mask.6", NULL, HF_UNWRITTEN}, {"layer_mask.7", NULL, HF_UNWRITTEN}
#define HF_DENSE_MASKS                                                                             \
    {"dense_mask.0", NULL, HF_UNWRITTEN}, {"dense_mask.1", NULL, HF_UNWRITTEN},                    \
    {"dense_mask.2", NULL, HF_UNWRITTEN}, {"dense_mask.3", NULL, HF_UNWRITTEN},                    \
    {"dense_mask.4", NULL, HF_UNWRITTEN}, {"dense_mask.5", NULL, HF_UNWRITTEN},                    \
    {"dense_mask.6", NULL, HF_UNWRITTEN}, {"dense_mask.7", NULL, HF_UNWRITTEN}
#define HF_NEVER                                                                                   \
    {"quantization_config", config_want_plain, NULL}, {"text_config", config_want_null, NULL}
/* clang-format on */

/* Reads a whole text into *c->m by the rules of c->form. If c->faults is NULL, returns 0, or -1
 * with c->e set. Otherwise adds all faults to *c->faults. Then -1 means that there is at least one
 * fault, or that config_find_model failed and set c->e. */
int config_read(struct config *c, const char *text, size_t size);
/* Finds c->family, c->type and c->m->family in a first pass over the text. If the package wrote
 * the text, a CONFIG_JOB becomes a CONFIG_FILE. For a wrapper (wrapper.h), *text is changed to its
 * text_config. Fails with ERR_UNSUPPORTED if the model is not supported; the error names
 * model_type, or the key that names another class. Fails with ERR_INVALID if the text is not an
 * object, or if model_type or text_config is missing, malformed or occurs twice. */
int config_find_model(struct config *c, const char **text, size_t *size);
/* config_is_nothing tells whether a key changes nothing, whatever its value is, in files of every
 * family or in those of c->family. config_neutral finds a key that changes nothing as long as it
 * has its default; it returns NULL if there is no such key. */
bool config_is_nothing(const struct config *c, const char *key);
const struct hf_special *config_neutral(const char *key);
/* Returns the feature of a model_type that is not supported here, or NULL if the type is not
 * known. */
const char *config_lacks(const char *type);
extern const struct hf_wrapper wrapper_rows[]; /* the last row has model.type NULL */
/* Reads the keys besides text_config. text is the wrapper's object. */
int wrapper_read(struct config *c, const char *text, size_t size);
/* Returns the row of hf_family.models for a file with these sizes. */
const struct hf_model *config_model(const struct model_shape *m);
/* Writes "key" with the value of f in m. */
void config_write_value(struct jwrite *w, const char *key, const struct field *f,
                        const struct model_shape *m);
/* Tells whether shapes of the family have that size, either because it is one of the family's
 * fields or because every shape has it. */
bool config_has(const struct hf_family *family, const char *name);
/* Tells whether files of the family give that size. They do if it is one of the family's fields
 * and is not HF_FIXED. */
bool config_says(const struct hf_family *family, const char *name);

/* ---- for the tables -------------------------------------------------------------------------- */

/* Sets an error about a key. The error also says where the key is. Returns -1. */
int config_error(struct config *c, enum err_code code, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Sets the error that KEY must be WANT. Returns -1. */
int config_invalid(struct config *c, const char *key, const char *want);
/* Does the same. The error also quotes the value, which is the token that was just read. */
int config_wrong(struct config *c, const char *key, const char *want);
/* Returns the token that was just read as an error quotes it, in out if it is a string or a
 * number. */
#define CONFIG_QUOTE 64
const char *config_quote(const struct config *c, char out[CONFIG_QUOTE]);
/* Returns the key as an error quotes it. The key is unchanged if it is short, has only visible
 * ASCII characters and has no colon. */
const char *config_shown(const char *key);
/* Notes that KEY asks for a computation that is not supported. The error is set when all keys have
 * been read. The caller must have read the whole value. Returns 0. */
int config_refuse(struct config *c, const char *key, const char *why);
/* Does the same with a reason that ends in its own remedy. */
int config_refuse_mended(struct config *c, const char *key, const char *why);
/* Does the same as config_refuse for the value that was just read. `only` lists the values that
 * are supported. */
int config_refuse_value(struct config *c, const char *key, const char *only);
bool config_met(const struct config *c, const char *key); /* key or field name */

/* Read the next value. null leaves *out unchanged. */
int config_read_int(struct config *c, const char *key, int64_t min, int64_t max, int64_t *out);
int config_read_real(struct config *c, const char *key, double min, double max, double *out);
int config_read_bool(struct config *c, const char *key, bool *out);

/* Reads a key that transformers ignores for this model_type, whatever its value. */
int config_ignore(struct config *c, const char *key);
/* Read keys that change nothing while they have the value in the function's name. */
int config_want_false(struct config *c, const char *key);
int config_want_true(struct config *c, const char *key);
int config_want_null(struct config *c, const char *key);
/* config_want_plain reads quantization_config, which must be null; config_want_plain_or_mxfp4 also
 * accepts quant_method "mxfp4". The functions after these two read keys as config_want_false
 * does. */
int config_want_plain(struct config *c, const char *key);
int config_want_plain_or_mxfp4(struct config *c, const char *key);
int config_want_zero(struct config *c, const char *key);
int config_want_one(struct config *c, const char *key);
int config_want_silu(struct config *c, const char *key);
int config_want_word(struct config *c, const char *key, const char *word);
/* Reads rope_scaling of v4 or rope_parameters of v5. In families that allow any rule
 * (family_row.rope_kinds) the rule is stored in shape.rope; in other families rope_type must be
 * "default". Also reads theta and the share of a head. */
int config_read_rope(struct config *c, const char *key);
/* Does the same for a family whose layers with a window have their own base, shape.rope_local.
 * Such a file has one object for "full_attention" and one for "sliding_attention". */
int config_read_layer_ropes(struct config *c, const char *key);
void config_write_rope(struct jwrite *w, const char *key, const struct model_shape *m);
/* Reads partial_rotary_factor. */
int config_read_partial(struct config *c, const char *key);
/* Sets rotary_dim from the share, and the original length from the key outside the object, which
 * overrides the one inside. Called after the last key. Fails with ERR_INVALID if the share is less
 * than a column. */
int config_finish_rope(struct config *c);
void config_write_partial(struct jwrite *w, const char *key, const struct model_shape *m);
/* Reads original_max_position_embeddings outside the object. It overrides the value inside the
 * object. */
int config_read_original(struct config *c, const char *key);
/* Reads an activation, under any of its names, into shape.act. */
int config_read_act(struct config *c, const char *key);
void config_write_act(struct jwrite *w, const char *key, const struct model_shape *m);

/* Reads an array of numbers into rows of shape_fields: NAME.0, NAME.1 and so on. */
int config_read_array(struct config *c, const char *key, const char *name);
/* Reads an array that has one element for each layer. It calls `read` for each element, with the
 * element's index in c->n_flags. `read` returns 0, also after config_refuse; 1 for an invalid
 * element; -1 with c->e set. */
int config_read_list(struct config *c, const char *key, int (*read)(struct config *, enum jtok));
void config_mark(int64_t mask[SHAPE_MASKS], int64_t l);
/* Sets the bit of layer l in layer_mask, if the layer is special. */
void config_mark_layer(struct model_shape *m, int64_t l, bool special);
/* Checks that the list had one element for each layer. */
int config_check_list(struct config *c, const char *key);

/* Write values that are the same in all files that seqd writes. */
void config_write_false(struct jwrite *w, const char *key, const struct model_shape *m);
void config_write_true(struct jwrite *w, const char *key, const struct model_shape *m);
void config_write_null(struct jwrite *w, const char *key, const struct model_shape *m);
void config_write_zero(struct jwrite *w, const char *key, const struct model_shape *m);
void config_write_silu(struct jwrite *w, const char *key, const struct model_shape *m);

#endif
