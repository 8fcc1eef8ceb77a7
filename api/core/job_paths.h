/* job_paths.h: the fields of a spec that name files. Each of these fields may have a path, or a
 * reference to another job in the form job:ID.
 *
 *   job:ID              the newest complete checkpoint of that job. When the job is submitted,
 *                       seqd replaces it once and for all by one of the forms below, and nodes see
 *                       only these
 *   job:ID/step-N       that checkpoint; job:ID/step-N/hf and so on are paths in it
 *   job:ID/artifacts/NAME
 *
 * ID is a number or, when a job is submitted, the name of a job. Pure. tested:
 * tests/core/test_job_paths.c */
#ifndef SEQD_CORE_JOB_PATHS_H
#define SEQD_CORE_JOB_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/job.h"

#define SPEC_PATHS    (5 + SPEC_ADAPTERS + 2 * SPEC_SOURCES)
#define JOB_REF_NAME  129 /* bytes of a job's name, with its NUL */
#define JOB_REF_BELOW 512

struct spec_path {
    spec_ref *ref;
    const struct spec_source *source; /* the data source that has this path, or NULL */
    char field[96];                   /* "data.train.0.path", "model.adapters.NAME" */
};
/* Writes the path of adapter i of model.adapters for errors, "model.adapters.NAME". Returns out. A
 * name that is too long is cut. */
#define JOB_ADAPTER_FIELD 96
const char *job_adapter_field(const struct job_spec *s, int i, char out[JOB_ADAPTER_FIELD]);
/* Lists the paths that the spec gives, in a fixed order. Returns the number of paths. */
int job_paths(struct job_spec *s, struct spec_path out[SPEC_PATHS]);

struct job_ref {
    int64_t job;               /* 0 if the reference gives the job's name instead of its id */
    char name[JOB_REF_NAME];   /* "" if the reference gives the job's id */
    int64_t step;              /* 0 if the reference names no step */
    bool artifact;             /* tells whether `below` is the name of an artifact */
    char below[JOB_REF_BELOW]; /* path in the checkpoint, such as "hf"; "" means the whole
                                * checkpoint */
};
bool job_ref_is(const char *path); /* begins with job: */
/* Reads a reference "job:...". Fails with ERR_INVALID, and the error names the field. */
int job_ref_read(const char *path, const char *field, struct job_ref *out, struct err *e);
/* Writes a reference in the form that nodes read: "job:7/step-20/hf". Returns its length, or -1 if
 * it does not fit. */
int job_ref_write(const struct job_ref *r, char *out, size_t size);
/* Writes the path of the reference, relative to the directory of its job:
 * "checkpoints/step-00000020/hf". If `grant` is true, writes only the part up to the checkpoint's
 * directory, because access is granted to the whole directory. Returns the length of the path, or
 * -1 if it does not fit. */
int job_ref_path(const struct job_ref *r, bool grant, char *out, size_t size);
/* Derives a reference from a path such as ".../jobs/7/checkpoints/step-00000020/hf", which older
 * specs have in place of a reference. *len gets the number of bytes of `path` up to the end of the
 * step's directory. Returns false if `path` has no such part. */
bool job_ref_guess(const char *path, struct job_ref *out, size_t *len);

/* Copies path without ".", double slashes and trailing slashes. Each ".." is resolved by removing
 * the part before it, so that no link is followed. Returns false if `path` is not absolute or is
 * too long. */
bool job_path_tidy(const char *path, char *out, size_t size);

#endif
