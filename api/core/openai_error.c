/* openai_error.c: writes an error as OpenAI's API does. */
#include "api/core/openai_error.h"

#include <string.h>
#include "api/core/jwrite.h"

bool openai_error_applies(const char *path)
{
    static const char prefix[] = "/openai/";
    return !strncmp(path, prefix, sizeof prefix - 1);
}

static const char *type_of(int status)
{
    if (status == 401) return "authentication_error";
    if (status == 403) return "permission_error";
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

int64_t openai_error_write(int status, const char *message, const char *param, const char *code,
                           char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_object(&w, "error");
    jwrite_str(&w, "message", message);
    jwrite_str(&w, "type", type_of(status));
    if (param && *param)
        jwrite_str(&w, "param", param);
    else
        jwrite_null(&w, "param");
    jwrite_str(&w, "code", code);
    jwrite_end(&w);
    jwrite_end(&w);
    return jwrite_finish(&w);
}
