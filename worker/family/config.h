/* config.h: reads a model's sizes from a config.json in the format of the Python package
 * transformers. */
#ifndef SEQD_FAMILY_CONFIG_H
#define SEQD_FAMILY_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"

struct faults;
struct job_spec;

#define MODEL_CONFIG_SIZE 65536 /* largest number of bytes of a model.config */

/* The origin of a text. It decides the meaning of an absent key. */
enum config_form {
    /* A config.json. An absent key has the meaning that it has in transformers for this
     * model_type. */
    CONFIG_FILE,
    /* A model.config that a person has written. Absent keys have the values of shape_defaults().
     * Keys may also be names of shape_fields. If the text has model_type and either
     * "architectures" or "transformers_version", the package has written it, and it is read like a
     * CONFIG_FILE. */
    CONFIG_JOB,
    /* A text that config_write() of this or an older version has written. Its keys are names of
     * shape_fields, even of sizes that the family does not have. Unknown keys are skipped. */
    CONFIG_KEPT
};

/* Reads the text of a config.json. path is used only in errors. Fails with ERR_INVALID if a key is
 * missing, malformed or unknown. Fails with ERR_UNSUPPORTED if a key asks for a computation that
 * is not supported. The error names the key. If several keys were refused, it names all of
 * them. */
int config_parse(const char *text, size_t size, const char *path, struct model_shape *m,
                 struct err *e);
/* Reads DIR/config.json. */
int config_read_dir(const char *dir, struct model_shape *m, struct err *e);
/* Tells whether the DIR/config.json is that of a wrapper (wrapper.h), whose text model alone is
 * computed. Fails as config_read_dir does. */
int config_wraps(const char *dir, bool *wraps, struct err *e);
/* Does the same as config_read_dir, but adds every fault to f, with file and key. Returns -1 if
 * there is a fault; *m must not be used then. */
int config_check(const char *dir, struct model_shape *m, struct faults *f);
/* Copies config.json unchanged from one directory to another. */
int config_copy(const char *from, const char *to, struct err *e);

/* Accepts the model of a job. Reads the text into s->model.shape. Writes the shape with
 * config_write() to s->model.config, which is sent with the job. form is CONFIG_JOB or
 * CONFIG_KEPT. The caller must have set s->model.path. Fails with ERR_INVALID or ERR_UNSUPPORTED,
 * where one error names all keys that were refused. Also fails with ERR_TOO_LARGE. */
int config_take(struct job_spec *s, const char *text, size_t size, enum config_form form,
                struct err *e);
/* Reads s->model.config into s->model.shape. model.config was sent with the job. */
int config_open(struct job_spec *s, struct err *e);
/* Writes s->model.config from s->model.shape. */
void config_keep(struct job_spec *s);

/* Writes one line of JSON, whose keys are names of shape_fields. The line has all sizes of the
 * family. It also has every other size that differs from the size in `base`. Returns the length,
 * or -1 if the line does not fit. */
int64_t config_write(const struct model_shape *m, const struct model_shape *base, char *out,
                     size_t size);

#endif
