/* etag.c: makes the entity tag of a job, and compares it with the tags that a client sends. */
#include "daemon/http/etag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/sha256.h"

#define DIGEST_DIGITS 16

int64_t etag_version(const char *json)
{
    /* A search for "version" is enough, because in the document it comes before all text of
     * clients, and quotes in such text are escaped. */
    const char *at = strstr(json, "\"version\":");
    return at ? strtoll(at + 10, NULL, 10) : 0;
}

char *etag_of(const char *json, char out[ETAG_SIZE])
{
    char digest[SHA256_HEX];
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, json, strlen(json));
    sha256_hex(&sha, digest);
    snprintf(out, ETAG_SIZE, "\"%lld-%.*s\"", (long long)etag_version(json), DIGEST_DIGITS, digest);
    return out;
}

int64_t etag_first(const char *tags)
{
    const char *p = tags + (strncmp(tags, "W/", 2) ? 0 : 2);
    const size_t n = *p == '"' ? strspn(p + 1, "0123456789") : 0;
    if (!n || n > 18 || (p[1 + n] != '"' && p[1 + n] != '-')) return -1;
    return strtoll(p + 1, NULL, 10);
}

/* Reads one tag at *p, and moves *p past it. Returns 1 if the version of the tag is `version`, 0
 * if it is not, and -1 if the text is not a tag. */
static int take_tag(const char **p, int64_t version)
{
    char want[32];
    const bool weak = !strncmp(*p, "W/", 2);
    const char *from = *p + (weak ? 2 : 0), *end = *from == '"' ? strchr(from + 1, '"') : NULL;
    if (!end) return -1;
    *p = end + 1;
    const size_t n = (size_t)snprintf(want, sizeof want, "%lld", (long long)version);
    const char *rest = from + 1 + n;
    return !weak && !strncmp(from + 1, want, n) && (*rest == '"' || *rest == '-');
}

bool etag_match(const char *p, int64_t version, bool *bad)
{
    bool found = false;
    *bad = false;
    if (!strcmp(p, "*")) return true;
    for (;;) {
        p += strspn(p, " \t");
        const int one = take_tag(&p, version);
        found |= one > 0;
        p += strspn(p, " \t");
        *bad = one < 0 || (*p && *p != ',');
        if (*bad || !*p++) return found && !*bad;
    }
}
