/* prepare.h: turns the text of a spec into a job that can be stored. It reads the spec, resolves
 * names and references, has a node describe the model, decides each "auto", and plans. It is used
 * for a submit, for each job of a batch and for a plan. */
#ifndef SEQD_DAEMON_HTTP_PREPARE_H
#define SEQD_DAEMON_HTTP_PREPARE_H

#include "api/core/job.h"
#include "daemon/access/names.h"
#include "daemon/http/adapters.h"
#include "daemon/http/refs.h"
#include "daemon/http/sources.h"
#include "daemon/loop/planner.h"
#include "worker/plan/machine.h"
#include "worker/plan/place.h"

#define PREPARE_PLAN_SIZE 131072 /* bytes; 96 alternatives take a third of them */

enum prepare_goal {
    PREPARE_PLAN,    /* makes a plan with alternatives, for the hardware of the request if it names
                      * some */
    PREPARE_DRY_RUN, /* the same as a submit, but with alternatives */
    PREPARE_SUBMIT
};

/* Called once, on the loop's thread, perhaps inside prepare. If e is NULL, spec, plan and source
 * can be stored. If e is set, `status` is the HTTP status of the answer; 0 means that e's code
 * determines the status. If e is ERR_DOES_NOT_FIT, the plan may be set or empty. */
typedef void prepare_done(void *arg, int status, const struct err *e);

/* The state of one preparation, of 0.4 MiB, zeroed at first. It can be used for one spec after the
 * other. All specs must be of the same user, because a node's answer about a model directory is
 * used again for later specs. */
struct preparing {
    struct routes *R;
    struct principal who;
    enum prepare_goal goal;
    /* the result */
    struct job_spec spec;
    char plan[PREPARE_PLAN_SIZE];
    struct refs_found source; /* node and step to which job:ID was resolved */
    /* used while a spec is prepared */
    prepare_done *done;
    void *arg;
    struct job_spec asked;    /* the spec as the user wrote it, with its values "auto" */
    struct hardware hardware; /* hardware to plan for, instead of this cluster's nodes */
    struct machine machine;   /* the machine for which the plan is made */
    struct plan_limits limits;
    bool older;         /* a node of the cluster has a version that does not know groups of
                               * ranks */
    struct errand task; /* the planning; while it runs, its thread owns all members except
                               * `known` */
    int bad;
    struct err why;
    struct names_grants grants;
    struct adapters adapters; /* the question about the adapter's directory */
    struct sources sources;   /* search for the data's files on nodes */
    bool resumes;             /* the job resumes a checkpoint of the model `made` */
    struct model_shape made;
    /* The last model that a node described: its config, and the arguments of the question. */
    struct {
        char path[RANK_PATH_SIZE], node[NODE_NAME], config[SPEC_CONFIG_SIZE];
        struct names_grants grants;
    } known;
};

/* Prepares a spec. text and p are borrowed until done is called. The plan itself is made on the
 * planner's thread. */
void prepare(struct preparing *p, const char *text, size_t size, prepare_done *done, void *arg);
/* Plans the job of a struct preparing. It is called on a thread of the planner. */
void prepare_plan(void *preparing);
/* Returns the plan that a refusal with the error e must show, or NULL if it shows no plan. */
const char *prepare_shown(const struct preparing *p, const struct err *e);

#endif
