/* format.c: the table of formats. Each row has the function that reads a format. If a sample
 * or a document of the format is stored in several files, the row also has a function that
 * hashes these files. */
#include "worker/data/format.h"

#include "worker/data/megatron.h"

static const struct format formats[DATA_FORMAT_N] = {
    [DATA_TEXT] = {"text", false, NULL, format_read_text, format_read_texts},
    [DATA_JSONL] = {"jsonl", false, NULL, format_read_jsonl, .reading = " reading 2"},
    [DATA_LLMC] = {"llmc", true, NULL, format_read_llmc},
    [DATA_NANOGPT] = {"nanogpt", true, NULL, format_read_nanogpt},
    [DATA_MEGATRON] = {"megatron", false, format_hash_megatron, format_read_megatron},
    [DATA_NPY] = {"npy", true, NULL, format_read_npy},
    [DATA_LATENTS] = {"latents", false, format_hash_latents, format_read_latents},
};

const char *format_index(int format, const char *path, char room[FILE_PATH_SIZE], struct err *e)
{
    if (format != DATA_MEGATRON || !*path) return path;
    return format_megatron_idx(path, room, e) < 0 ? NULL : room;
}

const struct format *format_row(int format)
{
    if (format < 0 || format >= DATA_FORMAT_N || !formats[format].read) return NULL;
    return &formats[format];
}
