/* job_paths.h: which fields of a spec name files, and job:ID in the place of a path.
 *
 *   job:ID              what that job left: its newest complete checkpoint. seqd makes one of these
 *                       of it at submit, once and for all, and nodes see nothing else:
 *   job:ID/step-N       that checkpoint; job:ID/step-N/hf and so on, what is in it
 *   job:ID/artifacts/NAME
 *
 * ID is a number, or at submit a job's name. Pure. tested: tests/core/test_job_paths.c */
#ifndef SEQD_CORE_JOB_PATHS_H
#define SEQD_CORE_JOB_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/job.h"

#define SPEC_PATHS    (4 + 2 * SPEC_SOURCES)
#define JOB_REF_NAME  129 /* of a job, with its NUL */
#define JOB_REF_BELOW 512

struct spec_path {
    spec_ref *ref;
    const struct spec_source *source; /* of data, whose path it is; else NULL */
    char field[48];                   /* "data.train.0.path" */
};
/* Those that are given, in a fixed order. Returns how many. */
int spec_paths(struct job_spec *s, struct spec_path out[SPEC_PATHS]);

struct job_ref {
    int64_t job;               /* 0: by name */
    char name[JOB_REF_NAME];   /* "": by number */
    int64_t step;              /* 0: not said */
    bool artifact;             /* below is the name of an artifact */
    char below[JOB_REF_BELOW]; /* of the checkpoint: "hf"; "": all of it */
};
bool job_ref_is(const char *path); /* begins with job: */
/* fails: ERR_INVALID naming the field. */
int job_ref_read(const char *path, const char *field, struct job_ref *out, struct err *e);
/* As nodes read it: "job:7/step-20/hf". Returns its length, or -1: it does not fit. */
int job_ref_write(const struct job_ref *r, char *out, size_t size);
/* Where it is beneath the directory of its job: "checkpoints/step-00000020/hf". grant: of a
 * checkpoint, its whole directory, which is what is granted. */
int job_ref_path(const struct job_ref *r, bool grant, char *out, size_t size);
/* ".../jobs/7/checkpoints/step-00000020/hf", as jobs were named before: the reference that it may
 * be, and how many bytes of path are up to the step's directory. */
bool job_ref_guess(const char *path, struct job_ref *out, size_t *len);

/* path without ".", ".." and double slashes, by its words alone. false: it is not absolute, or too
 * long. */
bool path_tidy(const char *path, char *out, size_t size);

#endif
