/* adapters.h: asks a node to describe the directories of a job's adapters. The directory of
 * model.adapter gives its values to the fields that the job leaves out. */
#ifndef SEQD_DAEMON_HTTP_ADAPTERS_H
#define SEQD_DAEMON_HTTP_ADAPTERS_H

#include "api/core/job.h"
#include "daemon/access/names.h"
#include "daemon/loop/control.h"
#include "worker/plan/adapter_facts.h"

/* The state of one question, of 0.1 MiB, zeroed at first. It can be used for one spec after the
 * other. */
struct adapters {
    struct control *control;
    const struct names_grants *grants; /* grants of the spec */
    const char *node;                  /* the node that has the directory; "" means any node */
    bool elsewhere; /* the job is planned for other hardware, on which nothing needs to exist */
    /* Called once. `status` is the HTTP status of the answer if e is set; 0 means that e's code
     * determines the status. e names the field; it is NULL if the job may continue. */
    void (*done)(void *arg, int status, const struct err *e);
    void *arg;
    struct job_spec *spec; /* borrowed until done is called */
    bool described;        /* `facts` are those of the directory, and the spec has them */
    int named;             /* lists that the job names itself (ADAPTER_NAMES_TARGETS ...) */
    int at; /* index of the adapter of model.adapters that a node is asked about; -1 for
             * model.adapter */
    struct adapter_facts facts;
    /* The last directory that a node described: the answer, and the arguments of the question. */
    struct {
        char path[RANK_PATH_SIZE], node[NODE_NAME];
        struct names_grants grants;
        struct adapter_facts facts;
    } known;
};

/* Tells whether no process reads model.adapter: the job resumes a checkpoint, which has the weights
 * of the adapter, and the spec names every field that the directory would give. */
bool adapters_unread(const struct job_spec *s);
/* Asks a node about model.adapter, if the spec has one, and fills in the spec. It asks about those
 * of model.adapters one after the other, and keeps the facts of each in the spec. No node is asked
 * for a directory that no process reads, or for a plan for other hardware that names adapter.type
 * itself. done is called on the loop's thread, perhaps inside the call. tested:
 * tests/daemon/test_seqd_adapter.c */
void adapters_find(struct adapters *a, struct job_spec *spec);
/* Checks the spec once its model is known. Fails with ERR_INVALID, and the error names the
 * field. */
int adapters_check(const struct adapters *a, struct err *e);
/* Names the directory in an error of family_check about a value that it gave. */
void adapters_blame(const struct adapters *a, struct err *e);

#endif
