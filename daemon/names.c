#include "daemon/names.h"

#include <stdio.h>
#include <string.h>
#include "api/core/beneath.h"
#include "api/core/rank.h"
#include "daemon/uploads.h"

static const char prefix[] = "upload:";
enum { PREFIX = sizeof prefix - 1 };

static int resolve(struct job_spec *s, spec_ref *ref, const char *field,
                   const struct uploads *uploads, const struct principal *who, struct err *e)
{
    char path[RANK_PATH_SIZE], name[64];
    const char *text = spec_text(s, *ref);
    if (strncmp(text, prefix, PREFIX)) return 0;
    text += PREFIX;
    if (!uploads)
        return err_field(e, ERR_INVALID, field,
                         "%s: this seqd takes no uploads: it runs without --uploads DIR", field);
    if (!beneath_name_good(text))
        return err_field(e, ERR_INVALID, field,
                         "%s: want upload:NAME or upload:NAME/FILE, without . and .. among its "
                         "parts",
                         field);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "/"), text);
    const char *owner = uploads_owner(uploads, name);
    if (strcspn(text, "/") >= sizeof name || !owner || !principal_owns(who, owner))
        return err_field(e, ERR_INVALID, field,
                         "%s: there is no complete upload \"%s\" of %s: seqctl push brings it",
                         field, name, who->user);
    const int n = snprintf(path, sizeof path, "%s/%s", uploads_files(uploads), text);
    if (n >= (int)sizeof path || spec_intern(s, path, (size_t)n, ref))
        return err_field(e, ERR_TOO_LARGE, field, "%s: the path is too long", field);
    return 0;
}

static int resolve_list(struct job_spec *s, struct spec_source *list, int n, const char *what,
                        const struct uploads *uploads, const struct principal *who, struct err *e)
{
    char field[64];
    for (int i = 0; i < n; i++) {
        snprintf(field, sizeof field, "%s.%d.path", what, i);
        if (resolve(s, &list[i].path, field, uploads, who, e)) return -1;
    }
    return 0;
}

int names_resolve(struct job_spec *s, const struct uploads *uploads, const struct principal *who,
                  struct err *e)
{
    if (resolve(s, &s->model.path, "model.path", uploads, who, e) ||
        resolve(s, &s->checkpoint.resume_path, "checkpoint.resume", uploads, who, e) ||
        resolve(s, &s->input.source.path, "input.path", uploads, who, e) ||
        resolve(s, &s->context.load, "context.load", uploads, who, e))
        return -1;
    if (resolve_list(s, s->data.train, s->data.n_train, "data.train", uploads, who, e)) return -1;
    return resolve_list(s, s->eval.data, s->eval.n_data, "eval.data", uploads, who, e);
}
