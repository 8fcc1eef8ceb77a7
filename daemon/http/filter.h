/* filter.h: selects the jobs that a request means by state, name and labels; all conditions that
 * are given must hold. They are given as query parameters state=S,S name=N label.KEY=VALUE, or as
 * members of a body.
 * tested: tests/daemon/test_seqd_filter.c, tests/scripts/people.sh */
#ifndef SEQD_DAEMON_HTTP_FILTER_H
#define SEQD_DAEMON_HTTP_FILTER_H

#include "daemon/http/http.h"
#include "daemon/state/jobs.h"

#define FILTER_TAGS 8 /* tags of a filter: the name and the labels */
#define FILTER_LIVE                                                                                \
    (1u << JOB_QUEUED | 1u << JOB_STARTING | 1u << JOB_RUNNING | 1u << JOB_STOPPING |              \
     1u << JOB_SUSPENDED)

struct filter {
    uint32_t states; /* a bit for each state; 0: all */
    int n_tags;
    struct filter_tag {
        char key[SPEC_LABEL_KEY + 1]; /* "": the name */
        char value[SPEC_LABEL_VALUE + 1];
    } tag[FILTER_TAGS];
};

/* filter_of_query and filter_of_body fail with ERR_INVALID, which names the field unless the whole
 * body is wrong. */
int filter_of_query(const struct http_req *r, struct filter *f, struct err *e);
/* Reads {"state": ["queued"], "name": "n", "labels": {"team": "x"}, "dry_run": true}: dry_run goes
 * to *dry_run. A body without any other member is refused: it would mean every job. */
int filter_of_body(const char *body, size_t size, struct filter *f, bool *dry_run, struct err *e);

bool filter_takes(const struct filter *f, const struct job *j);
/* Returns the filter's tags as ASK_TAGGED takes them, malloc'd; NULL: it has none. owner "":
 * anyone's jobs. */
char *filter_tags(const struct filter *f, const char *owner);

/* Returns the JSON of filter_tags, malloc'd, even if there are no tags: {"owner": "", "tags":
 * []}. */
char *filter_json(const struct filter *f, const char *owner);

#endif
