/* remote.c: recognises addresses by their scheme, and refuses each with the command that downloads
 * it. */
#include "api/core/remote.h"

#include <stdio.h>
#include <string.h>

/* In each line, URL stands for the address that the user gave. */
static const struct remote {
    const char *scheme, *line;
} remotes[] = {
    {"s3://", "aws s3 cp --recursive URL DIR"},
    {"gs://", "gcloud storage cp --recursive URL DIR"},
    {"az://", "az storage copy --recursive -s URL -d DIR"},
    {"abfs://", "az storage copy --recursive -s URL -d DIR"},
    {"abfss://", "az storage copy --recursive -s URL -d DIR"},
    {"hdfs://", "hdfs dfs -get URL DIR"},
    {"git://", "git clone URL DIR"},
    {"ssh://", "scp -r URL DIR"},
    {"https://", "curl -LO URL"},
    {"http://", "curl -LO URL"},
    {"ftp://", "curl -LO URL"},
};

static const char hub[] = "hf://", site[] = "https://huggingface.co/", sets[] = "datasets/";
static const char kind[] = "--repo-type dataset ";

/* Writes the command line for the Hub. `name` is the address after its prefix; only its beginning
 * "org/name" is used. */
static void hub_line(const char *name, bool data, char *out, size_t size)
{
    const bool set = !strncmp(name, sets, sizeof sets - 1);
    if (set) name += sizeof sets - 1;
    const char *slash = strchr(name, '/'), *end = slash ? strchr(slash + 1, '/') : NULL;
    const int n = end ? (int)(end - name) : (int)strlen(name);
    snprintf(out, size, "hf download %s%.*s --local-dir DIR", set || data ? kind : "",
             n < 120 ? n : 120, name);
}

static void fetch_line(const char *path, bool data, char *out, size_t size)
{
    *out = 0;
    if (!strncmp(path, hub, sizeof hub - 1)) {
        hub_line(path + sizeof hub - 1, data, out, size);
        return;
    }
    if (!strncmp(path, site, sizeof site - 1)) {
        hub_line(path + sizeof site - 1, false, out, size);
        return;
    }
    for (size_t i = 0; i < sizeof remotes / sizeof *remotes; i++) {
        const char *line = remotes[i].line, *at = strstr(line, "URL");
        if (strncmp(path, remotes[i].scheme, strlen(remotes[i].scheme)) != 0) continue;
        snprintf(out, size, "%.*s%.120s%s", (int)(at - line), line, path, at + 3);
        return;
    }
}

int remote_refuse(const char *path, const char *field, bool data, struct err *e)
{
    char line[256];
    const char *colon = strstr(path, "://");
    if (!colon || strchr(path, '/') < colon) return 0;
    if (!strncmp(path, "file://", 7))
        return err_field(e, ERR_INVALID, field, "%s %.160s: leave out file://", field, path);
    fetch_line(path, data, line, sizeof line);
    return err_field(
        e, ERR_INVALID, field,
        "%s %.120s is an address, and jobs read files of their nodes: fetch it beneath "
        "a root%s%s, then give its path, or seqctl push DIR NAME and upload:NAME",
        field, path, *line ? ": " : "", line);
}

const char *remote_hint(const char *path, bool data, char *out, size_t size)
{
    const char *slash = strchr(path, '/');
    *out = 0;
    if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/') || *path == '.' ||
        strpbrk(path, "*?[: ") || (data && strrchr(path, '.') > slash))
        return out;
    snprintf(out, size,
             ": where it is a name of the Hub, hf download %s%.100s --local-dir DIR fetches it",
             data ? kind : "", path);
    return out;
}
