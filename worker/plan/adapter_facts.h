/* adapter_facts.h: the properties of an adapter's directory, as `seqrank --describe-adapter` prints
 * them, and the fields of a job that they give a value to. tested:
 * tests/engine/test_adapter_facts.c, tests/daemon/test_seqd_adapter.c */
#ifndef SEQD_PLAN_ADAPTER_FACTS_H
#define SEQD_PLAN_ADAPTER_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/adapter.h"
#include "api/core/err.h"

struct job_spec;

struct adapter_facts {
    int64_t rank;
    double alpha, dropout;
    bool rslora;
    int64_t layers; /* number of layers, by the last that has an adapter; 0 if it is not known */
    int n;          /* number of targets */
    char target[SPEC_TARGETS][SPEC_TARGET_SIZE]; /* names of products within a layer */
    int n_saved;
    char saved[SPEC_SAVED][SPEC_TARGET_SIZE]; /* names of modules that are trained whole */
};
/* Lists that a job names itself. */
enum { ADAPTER_NAMES_TARGETS = 1, ADAPTER_NAMES_SAVED = 2 };
int adapter_facts_named(const struct job_spec *s);

/* Reads the text. The text may be malicious. Fails with ERR_PEER if it has another form, or a value
 * that no adapter has; and with ERR_UNSUPPORTED if no job can have its value. */
int adapter_facts_read(const char *json, size_t size, struct adapter_facts *out, struct err *e);

/* Writes the text of the facts that adapter_facts_read reads: JSON on one line. Returns its length,
 * or -1 if `size` is too small; ADAPTER_FACTS_SIZE is enough. */
#define ADAPTER_FACTS_SIZE 4096
int64_t adapter_facts_write(const struct adapter_facts *f, char *out, size_t size);

/* Gives a value to each of type, rank, alpha, rslora, targets and modules_to_save that the job does
 * not name, and to adapter.dropout of a training. Fails with ERR_INVALID if the job names a value
 * that is not the directory's. Lists that the job names are not compared here. Fails with
 * ERR_TOO_LARGE if the spec has no room for the names. */
int adapter_facts_fill(struct job_spec *s, const struct adapter_facts *f, struct err *e);

/* Checks a job that names targets or modules itself. Its model is known, and family_check has
 * succeeded. They must name the products and the whole modules of the directory, by whatever names.
 * Fails with ERR_INVALID, or as family_check does with the names of the directory. */
int adapter_facts_check(const struct job_spec *s, const struct adapter_facts *f, struct err *e);

/* Checks that the job's model, which is known, has all layers of the directory. */
int adapter_facts_check_layers(const struct job_spec *s, const struct adapter_facts *f,
                               struct err *e);

/* Changes an error about model.adapter into one about `field`, an adapter of model.adapters. The
 * sentence then names `field` in place of model.adapter, and begins with it. */
void adapter_facts_listed(const char *field, struct err *e);

/* Changes an error about an adapter of model.adapters that a rank has found while it loads the
 * adapter: `field` names it, and the error becomes one about `field`. If the error is about a field
 * of adapter.*, which such a job does not have, its fix becomes to submit the job again. */
void adapter_facts_changed(const char *field, struct err *e);

/* Checks the names of model.adapters, and that the requests of the job choose an adapter. Does
 * nothing if the job has none. Fails with ERR_INVALID, ERR_UNSUPPORTED or ERR_TOO_LARGE, and the
 * error names the field. */
int adapter_list_check(const struct job_spec *s, struct err *e);

/* Changes an error of family_check about fields that adapter_facts_fill has set. `named` has the
 * lists that the job names itself, and an error about another list becomes one about model.adapter.
 * If that list is modules_to_save, the fix becomes one of the directory. In an error about dropout,
 * the directory is named too. */
void adapter_facts_blame(const struct job_spec *s, const struct adapter_facts *f, int named,
                         struct err *e);

#endif
