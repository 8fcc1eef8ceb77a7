/* serve_owners.c: a list of names, in which the number of a user is its place. Numbers of users who
 * have no place follow SERVE_OWNERS. */
#include "worker/infer/serve_owners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void serve_owners_fini(struct serve_owners *s)
{
    free(s->name);
    *s = (struct serve_owners){0};
}

static int grow(struct serve_owners *s)
{
    const int room = s->room ? 2 * s->room : 16;
    void *name = realloc(s->name, (size_t)room * sizeof *s->name);
    if (!name) return -1;
    s->name = name;
    s->room = room;
    return 0;
}

uint32_t serve_owners_number(struct serve_owners *s, const char *user)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->name[i], user)) return (uint32_t)i + 1;
    if (s->n == SERVE_OWNERS || (s->n == s->room && grow(s))) {
        if (s->n_others < UINT32_MAX - SERVE_OWNERS) s->n_others++;
        return SERVE_OWNERS + s->n_others;
    }
    snprintf(s->name[s->n], sizeof s->name[0], "%s", user);
    return (uint32_t)++s->n;
}
