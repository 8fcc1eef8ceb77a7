/* tfevents.h: reads the event files of TensorBoard, and shares no code with the writer. It
 * computes the CRC with the standard's polynomial, bit 31 first. It reads messages field by field,
 * and refuses fields that it does not know. tfe_show merges several files in the same way as
 * TensorBoard. */
#ifndef SEQD_TESTS_TFEVENTS_H
#define SEQD_TESTS_TFEVENTS_H

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/file.h"
#include "tests/lib/test.h"

#define TFE_EVENTS 512
#define TFE_TAGS   16

struct tfe_event {
    double wall_s;
    int64_t step;
    char version[32]; /* "" means that there is none */
    int status;       /* the status of a session_log, or 0 if there is none */
    int n;            /* scalars */
    char tag[TFE_TAGS][48];
    float value[TFE_TAGS];
    size_t size; /* the size of the record */
};

/* ---- CRC-32C --------------------------------------------------------------------------------- */

static inline uint32_t tfe_mirror(uint32_t v, int n_bits)
{
    uint32_t out = 0;
    for (int i = 0; i < n_bits; i++) out |= (v >> i & 1) << (n_bits - 1 - i);
    return out;
}

static inline uint32_t tfe_crc(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 8; k++) { /* the lowest bit of each byte comes first */
            const uint32_t out = crc >> 31 ^ (p[i] >> k & 1);
            crc = crc << 1 ^ (out ? 0x1edc6f41 : 0);
        }
    return tfe_mirror(~crc, 32);
}

static inline uint64_t tfe_number(const unsigned char *p, int n)
{
    uint64_t v = 0;
    while (n--) v = v << 8 | p[n];
    return v;
}

static inline bool tfe_crc_holds(const unsigned char *p, size_t n, const unsigned char *stored)
{
    const uint32_t masked = (uint32_t)tfe_number(stored, 4), rotated = masked - 0xa282ead8;
    return tfe_crc(p, n) == (rotated >> 17 | rotated << 15);
}

/* ---- messages -------------------------------------------------------------------------------- */

struct tfe_field {
    unsigned number, wire;
    /* the value, if the field is a varint or has 4 or 8 bytes. For any other field it is the
     * number of bytes. */
    uint64_t v;
    const unsigned char *bytes;
};

static inline bool tfe_varint(const unsigned char **at, const unsigned char *end, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        const unsigned char b = *(*at)++;
        *v |= (uint64_t)(b & 127) << shift;
        if (b < 128) return true;
    }
    return false;
}

/* Reads the next field. Returns false at the end of the message. It also returns false if the
 * bytes are not a message, and then sets *at to NULL. */
static inline bool tfe_field(const unsigned char **at, const unsigned char *end,
                             struct tfe_field *f)
{
    uint64_t key;
    if (*at == end) return false;
    bool good = tfe_varint(at, end, &key);
    f->number = (unsigned)(key >> 3);
    f->wire = (unsigned)(key & 7);
    const int size = f->wire == 1 ? 8 : f->wire == 5 ? 4 : 0;
    f->bytes = *at;
    if (size) {
        good = good && end - *at >= size;
        if (good) f->v = tfe_number(*at, size), *at += size;
    } else {
        good = good && (f->wire == 0 || f->wire == 2) && tfe_varint(at, end, &f->v);
        f->bytes = *at;
        if (good && f->wire == 2) {
            good = f->v <= (uint64_t)(end - *at);
            if (good) *at += f->v;
        }
    }
    if (!good) *at = NULL;
    return good;
}

static inline bool tfe_value(const unsigned char *at, size_t n, struct tfe_event *ev)
{
    const unsigned char *end = at + n;
    struct tfe_field f;
    bool tag = false, number = false;
    if (ev->n == TFE_TAGS) return false;
    while (tfe_field(&at, end, &f)) {
        if (f.number == 1 && f.wire == 2 && f.v < sizeof ev->tag[0]) {
            snprintf(ev->tag[ev->n], sizeof ev->tag[0], "%.*s", (int)f.v, (const char *)f.bytes);
            tag = true;
        } else if (f.number == 2 && f.wire == 5) {
            const uint32_t bits = (uint32_t)f.v;
            memcpy(&ev->value[ev->n], &bits, 4);
            number = true;
        } else {
            return false;
        }
    }
    ev->n++;
    return at && tag && number;
}

static inline bool tfe_message(const unsigned char *at, size_t n, struct tfe_event *ev)
{
    const unsigned char *end = at + n, *in;
    struct tfe_field f, v;
    bool good = true;
    while (good && tfe_field(&at, end, &f)) {
        in = f.bytes;
        if (f.number == 1 && f.wire == 1) {
            memcpy(&ev->wall_s, &f.v, 8);
        } else if (f.number == 2 && f.wire == 0) {
            ev->step = (int64_t)f.v;
        } else if (f.number == 3 && f.wire == 2 && f.v < sizeof ev->version) {
            snprintf(ev->version, sizeof ev->version, "%.*s", (int)f.v, (const char *)f.bytes);
        } else if (f.number == 5 && f.wire == 2) {
            while (good && tfe_field(&in, f.bytes + f.v, &v))
                good = v.number == 1 && v.wire == 2 && tfe_value(v.bytes, v.v, ev);
            good = good && in;
        } else if (f.number == 7 && f.wire == 2) {
            good = tfe_field(&in, f.bytes + f.v, &v) && v.number == 1 && v.wire == 0 &&
                   in == f.bytes + f.v;
            ev->status = (int)v.v;
        } else {
            good = false;
        }
    }
    return good && at;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads the complete records of a file, at most TFE_EVENTS. *left becomes the number of bytes
 * after the last record. Returns the number of records, or -1 if a record is damaged. */
static inline int tfe_parse(const unsigned char *p, size_t size, struct tfe_event *out,
                            size_t *left)
{
    int n = 0;
    size_t at = 0;
    for (; size - at >= 16 && n < TFE_EVENTS; n++) {
        const uint64_t length = tfe_number(p + at, 8);
        if (!tfe_crc_holds(p + at, 8, p + at + 8)) return -1;
        if (length > size - at - 16) break;
        out[n] = (struct tfe_event){.size = (size_t)length + 16};
        if (!tfe_crc_holds(p + at + 12, (size_t)length, p + at + 12 + length)) return -1;
        if (!tfe_message(p + at + 12, (size_t)length, &out[n])) return -1;
        at += (size_t)length + 16;
    }
    *left = size - at;
    return n;
}

static inline int tfe_read(const char *path, struct tfe_event *out, size_t *left)
{
    struct err e = {0};
    size_t size = 0;
    char *bytes = file_read(path, 1 << 24, &size, &e);
    CHECK_MSG(bytes, "%s", e.text);
    const int n = bytes ? tfe_parse((const unsigned char *)bytes, size, out, left) : -1;
    free(bytes);
    return n;
}

static inline int tfe_is_file(const struct dirent *d)
{
    return strstr(d->d_name, "tfevents") != NULL;
}

struct tfe_curve {
    int n, n_files, n_starts;
    size_t left; /* the number of bytes, in all files, that do not belong to a complete record */
    struct tfe_point {
        int64_t step;
        char tag[48];
        float value;
    } point[TFE_EVENTS * TFE_TAGS];
    char file[16][256]; /* the names of the files, in alphabetical order */
};

/* Reads the curve that TensorBoard shows for a directory. A START event that is not the first one
 * marks a restart. It drops all earlier events whose step is the same or later
 * (plugin_event_accumulator.py, _CheckForRestartAndMaybePurge). */
static inline void tfe_show(const char *dir, struct tfe_curve *c)
{
    static struct tfe_event ev[TFE_EVENTS];
    struct dirent **list = NULL;
    size_t left = 0;
    char path[FILE_PATH_SIZE];
    *c = (struct tfe_curve){0};
    const int n_files = scandir(dir, &list, tfe_is_file, alphasort);
    for (int k = 0; k < n_files; k++) {
        snprintf(path, sizeof path, "%s/%s", dir, list[k]->d_name);
        if (c->n_files < 16) snprintf(c->file[c->n_files++], 256, "%s", list[k]->d_name);
        const int n = tfe_read(path, ev, &left);
        CHECK_MSG(n > 2 && !strcmp(ev[0].version, "brain.Event:2"), "%s: %d events", path, n);
        c->left += left;
        for (int i = 0; i < n; i++) {
            int kept = 0;
            const bool purge = ev[i].status == 1 && c->n_starts++ > 0;
            for (int j = 0; purge && j < c->n; j++)
                if (c->point[j].step < ev[i].step) c->point[kept++] = c->point[j];
            if (purge) c->n = kept;
            for (int j = 0; j < ev[i].n; j++) {
                struct tfe_point *p = &c->point[c->n++];
                p->step = ev[i].step;
                p->value = ev[i].value[j];
                snprintf(p->tag, sizeof p->tag, "%s", ev[i].tag[j]);
            }
        }
        free(list[k]);
    }
    free(list);
}

/* Returns how many values a tag has at a step. *value becomes the last of these values. */
static inline int tfe_count(const struct tfe_curve *c, const char *tag, int64_t step, float *value)
{
    int n = 0;
    for (int i = 0; i < c->n; i++)
        if (c->point[i].step == step && !strcmp(c->point[i].tag, tag))
            n++, *value = c->point[i].value;
    return n;
}

#endif
