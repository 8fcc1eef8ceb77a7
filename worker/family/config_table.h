/* config_table.h: the tables by which config.json is read and written, family by family.
 * worker/family, worker/hf and worker/plan/check_rope.c include it.
 *
 * A family's row has a struct hf_family. `fields` lists the family's own sizes with the keys of
 * its files. `specials` lists the keys that give several sizes or none. `finish` checks sizes that
 * depend on each other. Keys that change nothing are listed in config_house.c and in `nothing` of
 * the family, and are skipped. A key is refused if it is in no table, or if it asks for a
 * computation that is not supported. One error names all refused keys. A key has the meaning that
 * transformers gives it for this model_type. So does the absence of a key. */
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
    struct faults *faults; /* gets every fault; if this is NULL, reading ends at the first fault */
    /* if set, errors name fields of a job; if not set, errors name the file at `path` */
    bool job;
    const char *path; /* for error texts */
    struct model_shape *m;
    const struct hf_family *family;
    const char *seen[HF_MAX_SEEN]; /* keys and names of sizes read so far */
    int n_seen;
    struct err *e;
    /* These values are not sizes. Together with another key they give a size. They are 0 if the
     * file does not have them. */
    double theta;              /* rope_theta of a RoPE object */
    double expand_k, expand_v; /* width of all heads together, divided by hidden_size */
    double mlp_ratio;          /* width of the MLP, divided by hidden_size */
    double partial_rotary;     /* share of a head's columns that RoPE rotates */
    int64_t original;          /* original_max_position_embeddings outside the RoPE object */
    bool rope_object;          /* set when rope_scaling or rope_parameters has been read */
    int64_t mixer_width;       /* width of all heads together */
    int64_t n_flags;           /* length of the list that has an element for each layer */
    /* number of predicted values for each channel: 1, or 2 with a variance */
    int64_t sigma;
    int type; /* index in family->models of the file's model */
    /* window: width of the sliding window; full_first: number of layers at the start that have no
     * window */
    int64_t window, full_first;
    bool window_on;      /* use_sliding_window */
    int64_t sparse_step; /* decoder_sparse_step */
    char refused[400];   /* "key: why;\nkey: why": config_refuse */
    /* the remedy of the last refusal, with its colon; "" means that there is no remedy */
    const char *fix;
    int n_refused;
    bool unknown;         /* set if a key is not known */
    int64_t n_rope_flags; /* length of the list of layers with RoPE */
    int64_t n_windowed;   /* number of layers to which layer_types gives a window */
    /* the wrapper whose text_config is read; NULL if there is no wrapper */
    const struct hf_wrapper *wrapper;
    /* 1 + the wrapper's tie_word_embeddings; 0 if the wrapper does not have this key */
    int tied;
};

/* One size of the family. */
struct hf_field {
    const char *name; /* name of a row of shape_fields; it may also be used as a key */
    const char *key;  /* key in the family's files; NULL if it is `name` */
    enum {
        /* a file must have the key, and its value must not be null, unless hf_model.absent has a
         * value */
        HF_NEEDED = 1,
        HF_UNWRITTEN = 2, /* the size is given by a special key (hf_special) */
        /* the family has only one value, which files omit; the value is not compared */
        HF_FIXED = 4,
        HF_DERIVED = 8 /* null in a file means that the size is computed from other sizes */
    } flags;
};

struct hf_special {
    const char *key;
    /* Reads the value from c->j. NULL if the key is never read. */
    int (*read)(struct config *c, const char *key);
    /* Writes the key. NULL if the key is never written. */
    void (*write)(struct jwrite *w, const char *key, const struct model_shape *m);
};

/* The value of a size that a file does not give. It is the default of the package's class. */
struct hf_absent {
    const char *name; /* name of a row of shape_fields; NULL in the last entry */
    double value;
};

/* A model_type of the family's files. If architectures, auto_map or _class_name of a file names a
 * class other than these, the file has a different model and is refused. */
struct hf_model {
    const char *type; /* a value of model_type; NULL in the last entry */
    /* Values of sizes whose keys are absent. A size that is not listed is then 0. */
    const struct hf_absent *absent;
    /* Classes that compute this model, including base classes. The first of them is written as
     * architectures. */
    const char *classes[HF_CLASSES + 1];
};

/* A model that reads pictures and contains a text model. Only the text model is computed, which
 * has the object text_config and its own tensors. All other parts of the files are copied
 * (worker/hf). */
struct hf_wrapper {
    struct hf_model model;
    const char *text; /* model_type of its text_config */
    /* keys of the uncomputed part; they are skipped, whatever their values are; NULL-terminated */
    const char *const *keys;
};

struct hf_family {
    const struct hf_field *fields;     /* ends with name NULL */
    const struct hf_special *specials; /* ends with key NULL */
    const struct hf_model *models;     /* the first entry has the family's own model_type */
    /* Called after the last key has been read. NULL if nothing is to be called. */
    int (*finish)(struct config *c);
    /* Returns the index in `models` of the entry that is written for these sizes. NULL means index
     * 0. */
    int (*model)(const struct model_shape *m);
    /* further keys that change nothing, NULL-terminated; NULL if there are none */
    const char *const *nothing;
};

/* HF_SIZES has the sizes that nearly all files have. HF_NEVER has keys whose value must be
 * null. */
/* clang-format off */
#define HF_SIZES                                                                                   \
    {"hidden_size", NULL, HF_NEEDED}, {"num_hidden_layers", NULL, HF_NEEDED},                      \
    {"num_attention_heads", NULL, HF_NEEDED}, {"intermediate_size", NULL, HF_NEEDED},              \
    {"vocab_size", NULL, HF_NEEDED}, {"max_position_embeddings", NULL, 0},                         \
    {"tie_word_embeddings", NULL, 0}
/* Defaults of nearly all classes for keys that a file does not have. */
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
 * with c->e set. If c->faults is not NULL, adds all faults to it. Then -1 means that there is a
 * fault, or that config_find_model failed and set c->e. */
int config_read(struct config *c, const char *text, size_t size);
/* Finds c->family, c->type and c->m->family in a first pass over the text. If the package has
 * written the text, a CONFIG_JOB becomes a CONFIG_FILE. If the model is a wrapper (wrapper.h),
 * *text becomes its text_config. Fails with ERR_UNSUPPORTED if the model is not supported; the
 * error names model_type, or the key that names a class of a different model. Fails with
 * ERR_INVALID if the text is not an object, or if model_type or text_config is missing, malformed
 * or occurs twice. */
int config_find_model(struct config *c, const char **text, size_t *size);
/* config_is_nothing tells whether a key changes nothing, whatever its value is. A key can be
 * without effect in the files of every family, or only in the files of c->family. config_neutral
 * finds a key that changes nothing if it has its default value. It returns NULL if no key with
 * this name has that property. */
bool config_is_nothing(const struct config *c, const char *key);
const struct hf_special *config_neutral(const char *key);
/* Returns the feature that a model_type needs and that is not supported. Returns NULL if the type
 * is not known. */
const char *config_lacks(const char *type);
extern const struct hf_wrapper wrapper_rows[]; /* model.type is NULL in the last row */
/* Reads the wrapper's keys except text_config. text is the wrapper's object. */
int wrapper_read(struct config *c, const char *text, size_t size);
/* Returns the entry of hf_family.models for a file with these sizes. */
const struct hf_model *config_model(const struct model_shape *m);
/* Writes `key` with the value of f in m. */
void config_write_value(struct jwrite *w, const char *key, const struct field *f,
                        const struct model_shape *m);
/* Tells whether shapes of the family have this size. This is true if the size is one of the
 * family's fields, or if every shape has it. */
bool config_has(const struct hf_family *family, const char *name);
/* Tells whether files of the family give this size. This is true if the size is one of the
 * family's fields and is not HF_FIXED. */
bool config_says(const struct hf_family *family, const char *name);

/* ---- for the tables -------------------------------------------------------------------------- */

/* Sets an error about a key. The error also gives the place of the key. Returns -1. */
int config_error(struct config *c, enum err_code code, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Sets the error that the key must be WANT. Returns -1. */
int config_invalid(struct config *c, const char *key, const char *want);
/* Does the same as config_invalid. The error also quotes the value, which is the token that was
 * just read. */
int config_wrong(struct config *c, const char *key, const char *want);
/* Returns the token that was just read in the form in which an error quotes it. If it is a string
 * or a number, the text is in `out`. */
#define CONFIG_QUOTE 64
const char *config_quote(const struct config *c, char out[CONFIG_QUOTE]);
/* Returns the key as an error quotes it. The key is unchanged if it is short, has only visible
 * ASCII characters and has no colon. */
const char *config_shown(const char *key);
/* Notes that KEY asks for a computation that is not supported. The error is set when all keys have
 * been read. The caller must have read the whole value. Returns 0. */
int config_refuse(struct config *c, const char *key, const char *why);
/* Does the same as config_refuse, but `why` already ends with the remedy. */
int config_refuse_mended(struct config *c, const char *key, const char *why);
/* Does the same as config_refuse for the value that was just read. `only` lists the values that
 * are supported. */
int config_refuse_value(struct config *c, const char *key, const char *only);
/* tells whether this key or size has been read */
bool config_met(const struct config *c, const char *key);

/* Read the next value. If it is null, *out is unchanged. */
int config_read_int(struct config *c, const char *key, int64_t min, int64_t max, int64_t *out);
int config_read_real(struct config *c, const char *key, double min, double max, double *out);
int config_read_bool(struct config *c, const char *key, bool *out);

/* Reads and ignores a key that transformers ignores for this model_type. It may have any value. */
int config_ignore(struct config *c, const char *key);
/* Each function reads a key that changes nothing if its value is the value in the function's
 * name. */
int config_want_false(struct config *c, const char *key);
int config_want_true(struct config *c, const char *key);
int config_want_null(struct config *c, const char *key);
/* config_want_plain reads quantization_config, which must be null. config_want_plain_or_mxfp4 also
 * accepts quant_method "mxfp4". Each of the other functions reads a key that changes nothing if
 * its value is the value in the function's name. */
int config_want_plain(struct config *c, const char *key);
int config_want_plain_or_mxfp4(struct config *c, const char *key);
int config_want_zero(struct config *c, const char *key);
int config_want_one(struct config *c, const char *key);
int config_want_silu(struct config *c, const char *key);
int config_want_word(struct config *c, const char *key, const char *word);
/* Reads rope_scaling of v4, or rope_parameters of v5. If the family allows any rule
 * (family_row.rope_kinds), the rule is stored in shape.rope. In other families rope_type must be
 * "default". Also reads theta and the share of a head. */
int config_read_rope(struct config *c, const char *key);
/* Does the same as config_read_rope for a family in which layers with a window have their own
 * base, shape.rope_local. A file of such a family has one RoPE object for "full_attention" and one
 * for "sliding_attention". */
int config_read_layer_ropes(struct config *c, const char *key);
void config_write_rope(struct jwrite *w, const char *key, const struct model_shape *m);
/* Reads partial_rotary_factor. */
int config_read_partial(struct config *c, const char *key);
/* Computes rotary_dim from the share. Sets the original length from the key outside the RoPE
 * object, which overrides the value inside it. Call it after the last key. Fails with ERR_INVALID
 * if the share is less than a column. */
int config_finish_rope(struct config *c);
void config_write_partial(struct jwrite *w, const char *key, const struct model_shape *m);
/* Reads original_max_position_embeddings outside the RoPE object. This value overrides the value
 * inside the object. */
int config_read_original(struct config *c, const char *key);
/* Reads an activation into shape.act. All names of activations are accepted. */
int config_read_act(struct config *c, const char *key);
void config_write_act(struct jwrite *w, const char *key, const struct model_shape *m);

/* Reads an array of numbers into the rows NAME.0, NAME.1 and so on of shape_fields. */
int config_read_array(struct config *c, const char *key, const char *name);
/* Reads an array that has an element for each layer. Calls `read` for each element; c->n_flags is
 * then the element's index. `read` returns 0 if the element is valid, and also after
 * config_refuse. It returns 1 if the element is invalid, and -1 with c->e set after an error. */
int config_read_list(struct config *c, const char *key, int (*read)(struct config *, enum jtok));
void config_mark(int64_t mask[SHAPE_MASKS], int64_t l);
/* Sets the bit of layer l in layer_mask if `special` is true. */
void config_mark_layer(struct model_shape *m, int64_t l, bool special);
/* Checks that the list had an element for each layer. */
int config_check_list(struct config *c, const char *key);

/* Write a value that is the same in all files that seqd writes. */
void config_write_false(struct jwrite *w, const char *key, const struct model_shape *m);
void config_write_true(struct jwrite *w, const char *key, const struct model_shape *m);
void config_write_null(struct jwrite *w, const char *key, const struct model_shape *m);
void config_write_zero(struct jwrite *w, const char *key, const struct model_shape *m);
void config_write_silu(struct jwrite *w, const char *key, const struct model_shape *m);

#endif
