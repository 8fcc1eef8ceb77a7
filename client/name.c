/* name.c: asks seqd for the live jobs that have a name. If there is none, asks for the newest job
 * of that name. Several live jobs are an error. */
#include "client/name.h"

#include <stdio.h>
#include <string.h>
#include "client/api.h"
#include "client/text.h"

#define LISTED 10 /* number of live jobs of one name that a refusal lists */
#define LIVE   "&state=queued,starting,running,stopping,suspended"

/* Lists the newest jobs with this name, at most LISTED. `more` has further parameters of the
 * query. */
static int find(struct cli *c, const char *name, const char *more, struct jv **list)
{
    char escaped[1024], path[1200];
    snprintf(path, sizeof path, "/v1/jobs?limit=%d&name=%s%s", LISTED,
             http_escape(escaped, sizeof escaped, name), more);
    return api_get(c, path, list);
}

static int64_t ambiguous(const char *name, const struct jv *list)
{
    const struct jv *jobs = jv_get(list, "data");
    char ids[LISTED * 48] = "";
    for (size_t i = 0; i < jv_len(jobs); i++) {
        const struct jv *job = jv_at(jobs, i, NULL);
        const size_t n = strlen(ids);
        snprintf(ids + n, sizeof ids - n, "%s%lld (%.16s)", i ? ", " : "",
                 (long long)jv_int(job, "id", 0), jv_str(job, "state", "?"));
    }
    return -cli_fail(CLI_CONFLICT, "\"%s\" is the name of several live jobs: %s%s; give an id",
                     name, ids, jv_bool(list, "has_more", false) ? " and more" : "");
}

int64_t name_job(struct cli *c, const char *name)
{
    struct jv *list = NULL;
    int64_t id = 0;
    int rc = find(c, name, LIVE, &list);
    if (!rc && jv_len(jv_get(list, "data")) > 1)
        id = ambiguous(name, list);
    else if (!rc)
        id = jv_int(list, "data.0.id", 0);
    jv_free(list);
    list = NULL;
    if (!rc && !id) {
        rc = find(c, name, "", &list);
        id = jv_int(list, "data.0.id", 0);
        jv_free(list);
    }
    if (rc) return -rc;
    return id ? id : -cli_fail(CLI_NOT_FOUND, "no job has the id or name \"%s\"", name);
}
