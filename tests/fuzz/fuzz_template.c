/* sources: worker/jinja/chars.c worker/jinja/chars_table.c worker/jinja/heap.c worker/jinja/native.c worker/jinja/native_function.c worker/jinja/native_map.c worker/jinja/native_method.c worker/jinja/native_seq.c worker/jinja/native_test.c worker/jinja/native_text.c worker/jinja/sink.c worker/jinja/template.c worker/jinja/attr.c worker/jinja/call.c worker/jinja/eval.c worker/jinja/expr.c worker/jinja/lex.c worker/jinja/op.c worker/jinja/parse.c worker/jinja/run.c worker/jinja/text_ops.c worker/jinja/value.c worker/jinja/value_json.c api/core/err.c api/core/mem.c api/core/jread.c
 *
 * Renders a chat template, which is the input up to the first NUL. The bytes after the NUL are the
 * template's variables. If there is no NUL, a fixed conversation is used. The rendered text must
 * be well-formed UTF-8 within the limit, and its spans must be inside the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/core/utf8.h"
#include "worker/jinja/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
    "\"\\u00e9 x\"}, {\"role\": \"assistant\", \"content\": null, \"n\": [1, -2.5, true, {\"a\": "
    "{}}]}],"
    " \"tools\": null, \"add_generation_prompt\": true, \"bos_token\": \"<s>\"}";

static void check_text(const struct template_output *o)
{
    if (!o->size) return;
    const char *p = o->text, *end = p + o->size;
    if (o->size > TEMPLATE_OUTPUT) abort();
    for (int n; p < end; p += n)
        if (!(n = utf8_len(p, end))) abort();
    for (int64_t i = 0; i < o->n_spans; i++)
        if (o->span[i].begin < 0 || o->span[i].end > o->size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *nul = size ? memchr(text, 0, size) : NULL;
    const int64_t n = nul ? nul - text : (int64_t)size;
    struct template_output o = {0};
    struct err e = {0};
    struct template *t = jinja_create(text, n, &e);
    if (!t != (e.code != ERR_NONE)) abort();
    if (!t) return 0;
    const char *vars = nul ? nul + 1 : conversation;
    const int64_t n_vars = nul ? (int64_t)size - n - 1 : (int64_t)sizeof conversation - 1;
    if (!jinja_render(t, vars, n_vars, 0, &o, &e)) check_text(&o);
    jinja_output_fini(&o);
    jinja_destroy(t);
    return 0;
}
