/* prepare.h: turns the text of a spec into a job that can be stored. It reads the spec, resolves
 * names and references, has a node describe the model, decides each "auto", and plans. A submit,
 * each job of a batch and a plan all use it. */
#ifndef SEQD_DAEMON_HTTP_PREPARE_H
#define SEQD_DAEMON_HTTP_PREPARE_H

#include "api/core/job.h"
#include "daemon/access/names.h"
#include "daemon/http/refs.h"
#include "daemon/http/sources.h"
#include "daemon/loop/planner.h"
#include "worker/plan/machine.h"

#define PREPARE_PLAN_SIZE 131072 /* bytes; 96 alternatives take a third */

enum prepare_goal {
    PREPARE_PLAN,    /* plans with alternatives, perhaps for hardware that is not here */
    PREPARE_DRY_RUN, /* like a submit, with the alternatives */
    PREPARE_SUBMIT
};

/* Called once, on the loop's thread, perhaps at once. e NULL: spec, plan and source can be stored.
 * With ERR_DOES_NOT_FIT plan is set as well, or empty. status: the HTTP status of the answer; 0:
 * by the code of e. */
typedef void prepare_done(void *arg, int status, const struct err *e);

/* A struct of 0.4 MiB, zeroed at first, that serves one spec after the other. All specs must be of
 * one user, since a node's answer about a model directory is used again. */
struct preparing {
    struct routes *R;
    struct principal who;
    enum prepare_goal goal;
    /* the result */
    struct job_spec spec;
    char plan[PREPARE_PLAN_SIZE];
    struct refs_found source; /* node and step that job:ID was resolved to */
    /* used while a spec is prepared */
    prepare_done *done;
    void *arg;
    struct job_spec asked;    /* the spec as written, in which the values "auto" are kept */
    struct hardware hardware; /* hardware to plan for, instead of the nodes here */
    struct machine machine;   /* the machine that is planned for */
    bool older;               /* a node is here that knows no groups of ranks */
    struct errand task;       /* while it runs, its thread owns all of p except `known` */
    int bad;
    struct err why;
    struct names_grants grants;
    struct sources sources; /* search for the data's files on nodes */
    bool resumes;           /* the job resumes a checkpoint of the model `made` */
    struct model_shape made;
    /* the config of the model that was described last, and the arguments of that question */
    struct {
        char path[RANK_PATH_SIZE], node[NODE_NAME], config[SPEC_CONFIG_SIZE];
        struct names_grants grants;
    } known;
};

/* Prepares a spec. text and p are borrowed until done is called. The plan itself is made on the
 * planner's thread. */
void prepare(struct preparing *p, const char *text, size_t size, prepare_done *done, void *arg);
/* Returns the plan that a refusal with e shows; NULL: none. */
const char *prepare_shown(const struct preparing *p, const struct err *e);

#endif
