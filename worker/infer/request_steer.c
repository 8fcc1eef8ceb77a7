/* request_steer.c: reads the members that say which tokens an answer may have: logit_bias and
 * response_format. */
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/infer/request_body.h"
#include "worker/infer/request_text.h"
#include "worker/infer/vocabulary.h"

/* ---- logit_bias ------------------------------------------------------------------------------ */

/* Reads the id of a token from a key, which has its decimal digits. */
static int take_id(struct request_body *b, int32_t *id)
{
    const int64_t V = b->spec->model.shape.vocab;
    int64_t v = 0;
    bool good = b->j.len > 0 && b->j.len < 10;
    for (size_t i = 0; good && i < b->j.len; i++) {
        good = b->j.text[i] >= '0' && b->j.text[i] <= '9';
        v = 10 * v + (b->j.text[i] - '0');
    }
    if (!good || v >= V)
        return err_field(
            b->e, ERR_INVALID, "logit_bias",
            "logit_bias has a name that is not an id of a token: the vocabulary has the "
            "ids 0 to %lld",
            (long long)V - 1);
    *id = (int32_t)v;
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const int32_t x = ((const struct sample_bias *)a)->id, y = ((const struct sample_bias *)b)->id;
    return (x > y) - (x < y);
}

int request_take_bias(struct request_body *b, enum jtok t)
{
    struct request *r = b->r;
    if (t != J_OBJECT)
        return err_field(b->e, ERR_INVALID, "logit_bias",
                         "logit_bias must be an object of ids and numbers");
    if (!(r->bias = malloc(REQUEST_BIAS * sizeof *r->bias)))
        return err_field(b->e, ERR_IO, "logit_bias", "out of memory for logit_bias");
    while ((t = jread_next(&b->j)) == J_KEY) {
        struct sample_bias *p = &r->bias[r->n_bias];
        if (r->n_bias == REQUEST_BIAS)
            return err_field(b->e, ERR_TOO_LARGE, "logit_bias", "logit_bias has more than %d ids",
                             REQUEST_BIAS);
        if (take_id(b, &p->id)) return -1;
        if (jread_next(&b->j) != J_NUMBER || jread_double(&b->j, &p->add) ||
            !(p->add >= -100 && p->add <= 100))
            return err_field(b->e, ERR_INVALID, "logit_bias",
                             "logit_bias of %d must be a number from -100 to 100", (int)p->id);
        r->n_bias++;
    }
    qsort(r->bias, (size_t)r->n_bias, sizeof *r->bias, by_id);
    for (int32_t i = 1; i < r->n_bias; i++)
        if (r->bias[i].id == r->bias[i - 1].id)
            return err_field(b->e, ERR_INVALID, "logit_bias", "logit_bias has the id %d twice",
                             (int)r->bias[i].id);
    return 0;
}

/* ---- response_format ------------------------------------------------------------------------- */

struct answer_format { /* the members of response_format */
    char type[16];
    const char *schema; /* the schema of json_schema; NULL if there is none */
    int64_t size;
    bool named, has_schema;
};

static int refuse_format(struct request_body *b, enum err_code code, const char *why)
{
    return err_field(b->e, code, "response_format", "response_format: %s", why);
}

static int take_member(struct request_body *b, struct jread *j, struct answer_format *f)
{
    char name[65];
    if (jread_is(j, "name")) {
        if (jread_next(j) != J_STRING || jread_copy(j, name, sizeof name) || !*name)
            return refuse_format(b, ERR_INVALID,
                                 "json_schema.name must be a string of 1 to 64 bytes");
        f->named = true;
        return 0;
    }
    if (jread_is(j, "schema")) {
        if (jread_next(j) != J_OBJECT || f->schema)
            return refuse_format(b, ERR_INVALID, "json_schema.schema must be one object");
        f->schema = j->p - 1;
        if (jread_skip(j)) return -1;
        f->size = j->p - f->schema;
        return 0;
    }
    const bool strict = jread_is(j, "strict");
    if (!strict && !jread_is(j, "description"))
        return refuse_format(b, ERR_UNSUPPORTED,
                             "json_schema takes name, description, schema and strict alone");
    const enum jtok t = jread_next(j);
    if (t == J_NULL || (strict ? t == J_TRUE || t == J_FALSE : t == J_STRING)) return 0;
    return refuse_format(b, ERR_INVALID,
                         strict ? "json_schema.strict must be true or false"
                                : "json_schema.description must be a string");
}

static int take_schema(struct request_body *b, struct jread *j, struct answer_format *f)
{
    if (jread_next(j) != J_OBJECT || f->has_schema)
        return refuse_format(b, ERR_INVALID, "json_schema must be one object");
    f->has_schema = true;
    while (jread_next(j) == J_KEY)
        if (take_member(b, j, f)) return -1;
    return 0;
}

static int read_format(struct request_body *b, struct answer_format *f)
{
    struct jread j;
    jread_init(&j, b->format.json, (size_t)b->format.size);
    jread_next(&j);
    while (jread_next(&j) == J_KEY) {
        const bool schema = jread_is(&j, "json_schema");
        if (schema && take_schema(b, &j, f)) return -1;
        if (schema) continue;
        if (!jread_is(&j, "type"))
            return refuse_format(b, ERR_UNSUPPORTED, "it takes type and json_schema alone");
        if (jread_next(&j) != J_STRING || jread_copy(&j, f->type, sizeof f->type))
            return refuse_format(b, ERR_INVALID,
                                 "type must be \"text\", \"json_object\" or \"json_schema\"");
    }
    return 0;
}

int request_prepare_grammar(struct request_body *b, const char *field)
{
    struct request *r = b->r;
    struct err why = {0};
    if (!request_text_reads(r, b->spec)) return request_text_refuse(r, b->spec, field, b->e);
    if (!r->vocabulary)
        return err_field(b->e, ERR_UNSUPPORTED, field, "%s is not supported by this job", field);
    if (!vocabulary_prepare(r->vocabulary, r->tokenizer, b->spec->model.shape.vocab, &why))
        return 0;
    return err_field(b->e, why.code, field, "%s: %s", field, why.text);
}

/* Compiles response_format. */
static int take_format(struct request_body *b)
{
    struct answer_format f = {0};
    struct err why = {0};
    if (!b->format.json) return 0;
    if (read_format(b, &f)) return -1;
    const bool schema = !strcmp(f.type, "json_schema");
    if (f.has_schema != schema)
        return refuse_format(b, ERR_INVALID, "json_schema belongs to the type \"json_schema\"");
    if (!strcmp(f.type, "text")) return 0;
    if (!schema && strcmp(f.type, "json_object"))
        return refuse_format(b, ERR_INVALID,
                             "type must be \"text\", \"json_object\" or \"json_schema\"");
    if (schema && (!f.schema || !f.named))
        return refuse_format(b, ERR_INVALID, "json_schema needs name and schema");
    if (b->r->calls)
        return refuse_format(b, ERR_UNSUPPORTED,
                             "it does not go with tools: leave one out, or give tool_choice none");
    if (request_prepare_grammar(b, "response_format")) return -1;
    b->r->grammar = schema ? grammar_of_schema(f.schema, f.size, &why) : grammar_of_object(&why);
    if (b->r->grammar && !vocabulary_covers(b->r->vocabulary, b->r->grammar, &why)) return 0;
    return refuse_format(b, why.code, why.text);
}

int request_take_parts(struct request_body *b)
{
    return request_take_tools(b) || request_take_conversation(b) || take_format(b) ? -1 : 0;
}
