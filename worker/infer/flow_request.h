/* flow_request.h: reads a request to a generate job of a diffusion model, which is a line of
 * input.path:
 *
 *   {"custom_id": "a", "text": "a_t5.safetensors", "text_len": 117, "height": 480, "width": 854,
 *    "num_frames": 51, "fps": 24, "latents": {"T": 15, "H": 60, "W": 106}, "seed": 7,
 *    "steps": 30, "guidance": 7}
 *
 * custom_id  1 to 128 bytes, unique in the file
 * text       for models that read a caption: a safetensors file with its embedding, a tensor y [L,
 *            width], F32, F16 or BF16, whose first text_len rows (default: all) are the caption.
 *            The path is relative to the file of requests and must lie beneath its root
 * label      for models of classes (Latte), in place of text: 0 .. n - 1
 * height, width, num_frames, fps   the size of the picture in pixels, the number of frames and the
 *            frames per second (default 24). The model reads them, and times are shifted by them
 *            unless objective.transform is false
 * latents    sizes of the sample before it is cut into patches. By default H and W are an eighth
 *            of the sizes in pixels, and T is num_frames. For STDiT3 T is five for every 17 frames
 *            and one for every four of the remaining frames (rounded up), as in the released
 *            autoencoders. If num_frames is missing, it is T
 * seed the key of the noise. If a line has a seed, no other value is part of the key, so that the
 *            same line always begins with the same noise. By default the key is sampling.seed and
 *            the SHA-256 of custom_id
 * steps, guidance   default: the job's sampling.steps, sampling.guidance
 *
 * A member that is null counts as missing. An unknown member, or a member for other models,
 * refuses only this request. tested: tests/engine/test_flow_generate.c, tests/fuzz/fuzz_flow.c */
#ifndef SEQD_INFER_FLOW_REQUEST_H
#define SEQD_INFER_FLOW_REQUEST_H

#include "api/core/file.h"
#include "worker/infer/flow_sample.h"
#include "worker/infer/requests.h"

struct flow_request {
    char id[REQUEST_ID_SIZE];  /* custom_id */
    char text[FILE_PATH_SIZE]; /* path as written in the line, or "" if there is none */
    struct flow_sample s;      /* if x.text_len is 0, all rows of the file are used */
    struct err refused;        /* code is ERR_NONE if the request is not refused; field is the
                                * member at fault */
};

/* Reads a line, which may contain any bytes. spec is a job whose model.shape is known. */
void flow_request_of_line(struct flow_request *r, const struct job_spec *spec, const char *line,
                          int64_t size);

/* Reads the caption [x.text_len, caption_channels] into out, which has room for the model's
 * text_len rows, and sets x.text_len and x.text_width. manifest is the file of requests, beneath
 * root.
 * Fails as st_open does, or with ERR_INVALID, ERR_TOO_LARGE, ERR_CORRUPT or ERR_IO about "text" or
 * "text_len". */
int flow_request_caption(struct flow_request *r, const struct model_shape *m, const char *root,
                         const char *manifest, float *out, struct err *e);

#endif
