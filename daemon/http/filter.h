/* filter.h: selects jobs by state, name and labels. A request gives these conditions as the query
 * parameters state=S, name=N and label.KEY=VALUE, or as members of its body. A job must meet all
 * of them. tested: tests/daemon/test_seqd_filter.c, tests/scripts/people.sh */
#ifndef SEQD_DAEMON_HTTP_FILTER_H
#define SEQD_DAEMON_HTTP_FILTER_H

#include "daemon/http/http.h"
#include "daemon/state/jobs.h"

#define FILTER_TAGS 8 /* tags of a filter, which are the name and the labels */
#define FILTER_LIVE                                                                                \
    (1u << JOB_QUEUED | 1u << JOB_STARTING | 1u << JOB_RUNNING | 1u << JOB_STOPPING |              \
     1u << JOB_SUSPENDED)

struct filter {
    uint32_t states; /* one bit for each state; 0 selects every state */
    int n_tags;
    struct filter_tag {
        char key[SPEC_LABEL_KEY + 1]; /* "" for the name */
        char value[SPEC_LABEL_VALUE + 1];
    } tag[FILTER_TAGS];
};

/* filter_of_query and filter_of_body fail with ERR_INVALID. The error names the field, unless the
 * body as a whole is wrong. */
int filter_of_query(const struct http_req *r, struct filter *f, struct err *e);
/* Reads {"state": ["queued"], "name": "n", "labels": {"team": "x"}, "dry_run": true}. *dry_run
 * gets the value of dry_run. A body with no member other than dry_run is refused, because it would
 * select every job. */
int filter_of_body(const char *body, size_t size, struct filter *f, bool *dry_run, struct err *e);

bool filter_takes(const struct filter *f, const struct job *j);
/* Returns the filter's tags, malloc'd, in the form that ASK_TAGGED reads. Returns NULL if the
 * filter has no tags. If `owner` is "", jobs of every user are selected. */
char *filter_tags(const struct filter *f, const char *owner);

/* Does the same as filter_tags, but returns {"owner": "", "tags": []} if the filter has no
 * tags. */
char *filter_json(const struct filter *f, const char *owner);

#endif
