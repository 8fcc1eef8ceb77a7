/* config.h: reads a model's sizes from a config.json in the format of the Python package
 * transformers. */
#ifndef SEQD_FAMILY_CONFIG_H
#define SEQD_FAMILY_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"

struct faults;
struct job_spec;

#define MODEL_CONFIG_SIZE 65536 /* most bytes of a model.config, as it is sent */

/* The origin of a text, which decides the meaning of a key that is absent. */
enum config_form {
    /* A config.json. An absent key means the same as in transformers for that model_type. */
    CONFIG_FILE,
    /* A model.config as a person writes it. Absent keys have the values of shape_defaults(). The
     * names of shape_fields are allowed as keys too. A text with model_type and either
     * "architectures" or "transformers_version" was written by the package, and is read like a
     * CONFIG_FILE. */
    CONFIG_JOB,
    /* A text that this or an older version wrote with config_write(). Its keys are the names in
     * shape_fields, even for sizes that the family lacks. Unknown keys are skipped. */
    CONFIG_KEPT
};

/* Reads the text of a config.json. path is only for the texts of errors. Fails with ERR_INVALID (a
 * key is missing, malformed or unknown) or ERR_UNSUPPORTED (a key asks for a computation that is
 * not supported). Either error names the key, or all keys that were refused. */
int config_parse(const char *text, size_t size, const char *path, struct model_shape *m,
                 struct err *e);
/* Reads DIR/config.json. */
int config_read_dir(const char *dir, struct model_shape *m, struct err *e);
/* Does the same as config_read_dir, but adds every fault to f, with file and key. Returns -1 if
 * there is a fault; *m is then not usable. */
int config_check(const char *dir, struct model_shape *m, struct faults *f);
/* Copies config.json unchanged from one directory to another. */
int config_copy(const char *from, const char *to, struct err *e);

/* Accepts the model of a job: reads the text into s->model.shape, and writes the shape with
 * config_write() to s->model.config, which is sent with the job. form is CONFIG_JOB or
 * CONFIG_KEPT. The caller must have set s->model.path. Fails with ERR_INVALID or ERR_UNSUPPORTED,
 * in one error for all keys that were refused, or with ERR_TOO_LARGE. */
int config_take(struct job_spec *s, const char *text, size_t size, enum config_form form,
                struct err *e);
/* Reads s->model.config, which was sent with the job, into s->model.shape. */
int config_open(struct job_spec *s, struct err *e);
/* Writes s->model.config from s->model.shape. */
void config_keep(struct job_spec *s);

/* Writes one line of JSON with the names of shape_fields as keys. It has the sizes of the family,
 * and those other sizes that differ from base. Returns the length, or -1 if the line does not
 * fit. */
int64_t config_write(const struct model_shape *m, const struct model_shape *base, char *out,
                     size_t size);

#endif
