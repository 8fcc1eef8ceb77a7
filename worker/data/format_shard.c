/* llm.c and nanoGPT: token shards without an index. */
#include <string.h>
#include "worker/data/ids.h"

#define HEADER_INTS 256

enum { GPT2_END = 50256, LLAMA3_END = 128000 };

static const struct variant {
    uint32_t magic, version;
    int width;
    int64_t eod;
} variants[] = {{20240520, 1, 2, GPT2_END}, {20240801, 7, 4, LLAMA3_END}};

/* Magic number of a multiple-choice set, which is not a stream of tokens. */
#define EVAL_MAGIC 20240522

static uint32_t header_int(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static const struct variant *variant_of(const char *path, const uint8_t *header, struct err *e)
{
    const uint32_t magic = header_int(header), version = header_int(header + 4);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct variant *v = &variants[i];
        if (magic == v->magic && version == v->version) return v;
        if (magic == v->magic)
            err_set(e, ERR_UNSUPPORTED, "%s: version %u of an llm.c shard, want %u", path, version,
                    v->version);
        if (magic == v->magic) return NULL;
    }
    if (magic == EVAL_MAGIC)
        err_set(e, ERR_INVALID,
                "%s is an evaluation set of llm.c, which holds questions and no "
                "stream of tokens",
                path);
    else
        err_set(e, ERR_INVALID,
                "%s begins with %u, not with the 20240520 or 20240801 of an llm.c shard: say "
                "format \"nanogpt\" for bare uint16, \"megatron\" for a .bin with its .idx",
                path, magic);
    return NULL;
}

/* Returns how many numbers of this width follow the header. */
static int64_t count_ids(struct reader *r, int64_t header, int width, struct err *e)
{
    const int64_t size = reader_size(r), body = size - header;
    if (size < 0) return err_errno(e, "stat %s", r->path);
    if (body >= 0 && body % width == 0) return body / width;
    return err_set(e, ERR_CORRUPT,
                   "%s has %lld bytes after its header: no whole number of %d-byte "
                   "tokens",
                   r->path, (long long)body, width);
}

int format_read_llmc(struct format_in *in, struct err *e)
{
    uint8_t header[4 * HEADER_INTS];
    if (reader_take(in->r, header, sizeof header, "the header of an llm.c shard", e) < 0) return -1;
    const struct variant *v = variant_of(in->r->path, header, e);
    if (!v) return -1;
    const int64_t n = count_ids(in->r, sizeof header, v->width, e);
    if (n < 0) return -1;
    /* The header has the count modulo 2^32. */
    if ((uint32_t)n != header_int(header + 8))
        return err_set(e, ERR_CORRUPT, "%s holds %lld tokens, its header says %u", in->r->path,
                       (long long)n, header_int(header + 8));
    struct ids_in ids = {in->r, in->c, {v->width, false}, sizeof header, 0};
    return ids_documents(&ids, n, in->eod < 0 ? v->eod : in->eod, IDS_END_FIRST, e);
}

int format_read_nanogpt(struct format_in *in, struct err *e)
{
    const int64_t n = count_ids(in->r, 0, 2, e);
    if (n < 0) return -1;
    struct ids_in ids = {in->r, in->c, {2, false}, 0, 0};
    return ids_documents(&ids, n, in->eod < 0 ? GPT2_END : in->eod, IDS_END_LAST, e);
}
