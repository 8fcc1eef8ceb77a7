/* flow_request.c: reads the members of a request by a table. Then applies the rules that concern
 * several members: a caption or a class, sizes, the seed. */
#include "worker/infer/flow_request.h"

#include <stdio.h>
#include <string.h>
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/utf8.h"
#include "worker/plan/noise.h"

/* Largest number of values of noise. Each value of the 32-bit counter gives four values of
 * noise. */
#define NOISE_VALUES ((double)((int64_t)1 << 34))

struct request_line {
    struct flow_request *r;
    const struct job_spec *spec;
    struct jread j;
    uint32_t seen;      /* one bit for each member, in the order of members[] */
    int64_t latents[3]; /* T, H, W; 0 if they are not given */
    int64_t label;      /* -1 if it is not given */
    bool own_seed;
    struct err *e;
};

/* ---- members --------------------------------------------------------------------------------- */

static int take_count(struct request_line *l, const char *name, int64_t *out)
{
    int64_t n;
    if (jread_next(&l->j) != J_NUMBER || jread_int(&l->j, &n) || n < 1 || n > LATENTS_DIM)
        return err_field(l->e, ERR_INVALID, name, "%s must be a whole number from 1 to %d", name,
                         LATENTS_DIM);
    *out = n;
    return 0;
}

/* Reads a number. It must be in the range of the field sampling.NAME of the job spec, where NAME
 * is the parameter `name`. */
static int take_number(struct request_line *l, const char *name, double *out)
{
    char path[32];
    snprintf(path, sizeof path, "sampling.%s", name);
    const struct field *f = spec_field(path);
    int64_t whole;
    if (jread_next(&l->j) != J_NUMBER || jread_double(&l->j, out) ||
        (f->type != FIELD_DOUBLE && jread_int(&l->j, &whole)))
        return err_field(l->e, ERR_INVALID, name, "%s must be %s", name,
                         f->type == FIELD_DOUBLE ? "a number" : "a whole number");
    if (field_allows(f, *out)) return 0;
    return err_field(l->e, ERR_INVALID, name, "%s is %.16g: it must lie between %.16g and %.16g",
                     name, *out, f->min, f->max);
}

static int take_id(struct request_line *l)
{
    struct flow_request *r = l->r;
    if (jread_next(&l->j) == J_STRING && !jread_copy(&l->j, r->id, sizeof r->id) && *r->id)
        return 0;
    return err_field(l->e, ERR_INVALID, "custom_id", "custom_id must be a string of 1 to %d bytes",
                     REQUEST_ID_SIZE - 1);
}

static int take_text(struct request_line *l)
{
    struct flow_request *r = l->r;
    if (jread_next(&l->j) == J_STRING && !jread_copy(&l->j, r->text, sizeof r->text) && *r->text)
        return 0;
    return err_field(l->e, ERR_INVALID, "text",
                     "text must be the path of a safetensors file with the caption's embedding");
}

static int take_label(struct request_line *l)
{
    if (jread_next(&l->j) == J_NUMBER && !jread_int(&l->j, &l->label) && l->label >= 0) return 0;
    return err_field(l->e, ERR_INVALID, "label", "label must be the number of a class, from 0");
}

static int take_fps(struct request_line *l)
{
    double fps;
    if (jread_next(&l->j) != J_NUMBER || jread_double(&l->j, &fps) || !(fps > 0 && fps <= 1e6))
        return err_field(l->e, ERR_INVALID, "fps", "fps must be a number above 0, at most 1e6");
    l->r->s.x.fps = (float)fps;
    return 0;
}

static const char *const sides[3] = {"latents.T", "latents.H", "latents.W"};

static int take_latents(struct request_line *l)
{
    if (jread_next(&l->j) != J_OBJECT)
        return err_field(l->e, ERR_INVALID, "latents",
                         "latents must be {\"T\": ..., \"H\": ..., \"W\": ...}");
    while (jread_next(&l->j) == J_KEY) {
        int i = 0;
        while (i < 3 && !jread_is(&l->j, sides[i] + 8)) i++;
        if (i == 3 || l->latents[i])
            return err_field(l->e, ERR_INVALID, "latents", "latents takes T, H and W, each once");
        if (take_count(l, sides[i], &l->latents[i])) return -1;
    }
    return 0;
}

static int take_height(struct request_line *l)
{
    return take_count(l, "height", &l->r->s.x.height);
}

static int take_width(struct request_line *l)
{
    return take_count(l, "width", &l->r->s.x.width);
}

static int take_frames(struct request_line *l)
{
    return take_count(l, "num_frames", &l->r->s.x.num_frames);
}

static int take_text_len(struct request_line *l)
{
    return take_count(l, "text_len", &l->r->s.x.text_len);
}

static int take_seed(struct request_line *l)
{
    double seed;
    if (take_number(l, "seed", &seed)) return -1;
    l->r->s.seed = (int64_t)seed; /* the conversion is exact, because the seed is below 2^53 */
    l->own_seed = true;
    return 0;
}

static int take_steps(struct request_line *l)
{
    double steps;
    if (take_number(l, "steps", &steps)) return -1;
    l->r->s.steps = (int64_t)steps;
    return 0;
}

static int take_guidance(struct request_line *l)
{
    return take_number(l, "guidance", &l->r->s.guidance);
}

static const struct flow_member {
    const char *name;
    int (*take)(struct request_line *);
} members[] = {
    {"custom_id", take_id},  {"text", take_text},       {"label", take_label},
    {"height", take_height}, {"width", take_width},     {"num_frames", take_frames},
    {"fps", take_fps},       {"latents", take_latents}, {"text_len", take_text_len},
    {"seed", take_seed},     {"steps", take_steps},     {"guidance", take_guidance},
};
#define N_MEMBERS (sizeof members / sizeof *members)

static int take_member(struct request_line *l)
{
    char name[64];
    size_t i = 0;
    while (i < N_MEMBERS && !jread_is(&l->j, members[i].name)) i++;
    if (i == N_MEMBERS) {
        if (jread_copy(&l->j, name, sizeof name)) strcpy(name, "(a long name)");
        utf8_show(name);
        return err_field(l->e, ERR_INVALID, name, "unknown member \"%s\": leave it out", name);
    }
    if (l->seen >> i & 1)
        return err_field(l->e, ERR_INVALID, members[i].name, "%s occurs twice", members[i].name);
    l->seen |= 1u << i;
    const struct jread before = l->j;
    if (jread_next(&l->j) == J_NULL) return 0;
    l->j = before;
    return members[i].take(l);
}

/* ---- rules of several members ---------------------------------------------------------------- */

static int missing(struct request_line *l, const char *name, const char *what)
{
    return err_field(l->e, ERR_INVALID, name, "%s is missing: %s", name, what);
}

static int unwanted(struct request_line *l, const char *name, const char *what)
{
    return err_field(l->e, ERR_INVALID, name, "%s: %s, leave it out", name, what);
}

/* Checks the input that conditions the sample, which is a caption, a class or nothing. */
static int check_told(struct request_line *l)
{
    const struct model_shape *m = &l->spec->model.shape;
    const struct flow_request *r = l->r;
    /* the last class means "no class" and is not counted */
    const int64_t classes = m->type_vocab - 1;
    if (m->caption_channels && !*r->text) return missing(l, "text", "this model reads a caption");
    if (!m->caption_channels && *r->text) return unwanted(l, "text", "this model reads no caption");
    if (r->s.x.text_len && !*r->text) return unwanted(l, "text_len", "there is no text");
    if (m->type_vocab && l->label < 0) return missing(l, "label", "this model knows classes");
    if (!m->type_vocab && l->label >= 0) return unwanted(l, "label", "this model knows no classes");
    if (m->type_vocab && l->label >= classes)
        return err_field(l->e, ERR_INVALID, "label", "label %lld: the model knows %lld classes",
                         (long long)l->label, (long long)classes);
    l->r->s.label = (int32_t)(l->label < 0 ? 0 : l->label);
    return 0;
}

static int too_large(struct request_line *l, int i, const char *field, int64_t most)
{
    return err_field(l->e, ERR_TOO_LARGE, sides[i], "%s %lld: this job was planned for %s %lld",
                     sides[i], (long long)l->latents[i], field, (long long)most);
}

/* Checks that the number of frames and the number of patches of a frame are not larger than in
 * the plan. Height and width are not compared one by one. */
static int check_room(struct request_line *l)
{
    const struct job_spec *s = l->spec;
    const struct model_shape *m = &s->model.shape;
    const int64_t *n = l->latents, h = m->patch_h, w = m->patch_w;
    const int64_t most = (s->data.height + h - 1) / h * ((s->data.width + w - 1) / w);
    if (n[0] > s->data.frames) return too_large(l, 0, "data.frames", s->data.frames);
    if ((n[1] + h - 1) / h * ((n[2] + w - 1) / w) <= most) return 0;
    return n[1] > s->data.height ? too_large(l, 1, "data.height", s->data.height)
                                 : too_large(l, 2, "data.width", s->data.width);
}

/* Sets the sizes of the latents. If they are not given, computes them from the sizes of the
 * video. Checks that the plan has room for the latents. */
static int check_sizes(struct request_line *l)
{
    const struct job_spec *s = l->spec;
    struct latents_sample *x = &l->r->s.x;
    int64_t *n = l->latents;
    if (!x->height || !x->width)
        return missing(l, x->height ? "width" : "height", "the picture's pixels");
    if (!x->num_frames && !n[0]) return missing(l, "num_frames", "give it, or latents.T");
    if (!x->num_frames) x->num_frames = n[0];
    if (!n[0]) n[0] = flow_frames(&s->model.shape, x->num_frames);
    if (!n[1]) n[1] = x->height / 8;
    if (!n[2]) n[2] = x->width / 8;
    for (int i = 1; i < 3; i++)
        if (n[i] < 1)
            return err_field(l->e, ERR_INVALID, i == 1 ? "height" : "width",
                             "%s %lld: an eighth of it is no row of latents",
                             i == 1 ? "height" : "width",
                             (long long)(i == 1 ? x->height : x->width));
    x->C = s->model.shape.in_channels;
    x->T = n[0];
    x->H = n[1];
    x->W = n[2];
    if ((double)x->C * (double)x->T * (double)x->H * (double)x->W > NOISE_VALUES)
        return err_field(l->e, ERR_TOO_LARGE, "latents", "a sample may have %.0f values",
                         NOISE_VALUES);
    return check_room(l);
}

static int check_steps(struct request_line *l)
{
    const int64_t n = l->r->s.steps;
    if (!shape_of_noise(&l->spec->model.shape) || (n >= 2 && n <= NOISE_STEPS)) return 0;
    return err_field(l->e, ERR_INVALID, "steps",
                     "steps %lld: a model that predicts noise is sampled in 2 to %d", (long long)n,
                     NOISE_STEPS);
}

/* Sets the key of the noise. The key is the request's seed. If the request has no seed, the
 * key is made from the job's seed and the custom_id, as in batches of text. */
static void set_key(struct request_line *l)
{
    struct flow_request *r = l->r;
    if (!l->own_seed) r->s.seed = l->spec->sampling.seed;
    r->s.n = l->own_seed ? 0 : request_key(r->id);
}

static int read_line(struct request_line *l)
{
    enum jtok t = jread_next(&l->j);
    if (t != J_OBJECT) return err_set(l->e, ERR_INVALID, "the line must be a JSON object");
    while ((t = jread_next(&l->j)) == J_KEY)
        if (take_member(l)) return -1;
    if (t == J_OBJECT_END) jread_next(&l->j);
    return 0;
}

static int take_line(struct request_line *l)
{
    const int rc = read_line(l);
    /* If the JSON is invalid, report this error, because it can make members look wrong. */
    if (l->j.err.code != ERR_NONE) return err_set(l->e, ERR_INVALID, "%s", l->j.err.text);
    if (rc) return -1;
    if (!*l->r->id) return missing(l, "custom_id", "a string that names the request");
    return check_told(l) || check_sizes(l) || check_steps(l) ? -1 : 0;
}

void flow_request_of_line(struct flow_request *r, const struct job_spec *spec, const char *line,
                          int64_t size)
{
    struct request_line l = {.r = r, .spec = spec, .label = -1, .e = &r->refused};
    *r = (struct flow_request){.s = {.x = {.fps = 24},
                                     .steps = spec->sampling.steps,
                                     .ancestral = spec->sampling.eta == 1,
                                     .guidance = spec->sampling.guidance}};
    jread_init(&l.j, line, (size_t)size);
    if (take_line(&l)) return;
    const struct latents_sample *x = &r->s.x;
    r->s.shift = spec->objective.transform && !shape_of_noise(&spec->model.shape)
                     ? flow_shift(&spec->model.shape, x->height, x->width, x->num_frames)
                     : 1;
    set_key(&l);
}
