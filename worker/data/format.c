#include "worker/data/encode_text.h"
#include "worker/data/format.h"

static const struct format formats[DATA_FORMAT_N] = {
    [DATA_TEXT] = {"text", false, NULL, format_read_text},
    [DATA_JSONL] = {"jsonl", false, NULL, format_read_jsonl},
    [DATA_LLMC] = {"llmc", true, NULL, format_read_llmc},
    [DATA_NANOGPT] = {"nanogpt", true, NULL, format_read_nanogpt},
    [DATA_MEGATRON] = {"megatron", false, format_hash_megatron, format_read_megatron},
    [DATA_NPY] = {"npy", true, NULL, format_read_npy},
    [DATA_LATENTS] = {"latents", false, format_hash_latents, format_read_latents},
};

const struct format *format_row(int format)
{
    if (format < 0 || format >= DATA_FORMAT_N || !formats[format].read) return NULL;
    return &formats[format];
}

/* A tokenizer takes a text whole. */
static int read_whole(struct format_in *in, struct err *e)
{
    struct reader *r = in->r;
    while (!r->end) {
        if (r->n == r->room && reader_grow(r, TOKENIZER_TEXT_SIZE, e) < 0)
            return err_prefix(
                e,
                "%s is one text, and the tokenizer of model.path takes at most 1 GiB: "
                "give jsonl, a document a line",
                r->path);
        if (reader_fill(r, e) < 0) return -1;
    }
    struct encode_cut cut;
    encode_text_forget(in->c->text);
    if (encode_text(in->c->text, r->buf, r->n, 0, &cut, e) < 0 || encode_put(in->c, &cut, e) < 0)
        return err_prefix(e, "%s", r->path);
    return encode_end(in->c, true, 0, 0, e);
}

int format_read_text(struct format_in *in, struct err *e)
{
    struct reader *r = in->r;
    if (in->c->text) return read_whole(in, e);
    while (!r->end) {
        if (reader_fill(r, e) < 0) return -1;
        if (encode_bytes(in->c, r->buf, r->n, true, e) < 0) return err_prefix(e, "%s", r->path);
        reader_drop(r, r->n);
    }
    return encode_end(in->c, true, 0, 0, e);
}
