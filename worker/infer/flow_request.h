/* flow_request.h: reads a request to a generate job of a diffusion model. A request is a line of
 * input.path:
 *
 *   {"custom_id": "a", "text": "a_t5.safetensors", "text_len": 117, "height": 480, "width": 854,
 *    "num_frames": 51, "fps": 24, "latents": {"T": 15, "H": 60, "W": 106}, "seed": 7,
 *    "steps": 30, "guidance": 7}
 *
 *   custom_id        1 to 128 bytes; no two lines of the file may have the same
 *   text             for models that read a caption: the path of a safetensors file that has the
 *                    caption's embedding. This is a tensor y [L, width] in F32, F16 or BF16, whose
 *                    first text_len rows are the caption (default: all rows). The path is relative
 *                    to the file of requests, and the file must be beneath the same root as the
 *                    file of requests
 *   label            for models that read a class instead of a caption (Latte), used in place of
 *                    text: 0 .. n - 1
 *   height, width    size of the picture in pixels
 *   num_frames, fps  number of frames, and frames per second (default 24). The model reads these
 *                    four numbers. They also shift the times, unless objective.transform is false
 *   latents          sizes of the sample before it is cut into patches. By default H and W are an
 *                    eighth of the sizes in pixels, and T is num_frames. For STDiT3 the default
 *                    of T is five for every 17 frames, and one for every four of the remaining
 *                    frames (rounded up), as in the released autoencoders. If num_frames is
 *                    missing, it is T
 *   seed             key of the noise. If a line has a seed, the key is this seed alone, so that
 *                    equal lines always begin with equal noise. By default the key is
 *                    sampling.seed and the SHA-256 of custom_id
 *   steps, guidance  by default the job's sampling.steps and sampling.guidance
 *
 * A member that is null is treated as missing. A request is refused if it has an unknown
 * member, or a member that is only for other models. The other requests of the file are still
 * computed. tested: tests/engine/test_flow_generate.c, tests/fuzz/fuzz_flow.c */
#ifndef SEQD_INFER_FLOW_REQUEST_H
#define SEQD_INFER_FLOW_REQUEST_H

#include "api/core/file.h"
#include "worker/infer/flow_sample.h"
#include "worker/infer/requests.h"

struct flow_request {
    char id[REQUEST_ID_SIZE];  /* custom_id */
    char text[FILE_PATH_SIZE]; /* path as written in the line; "" if the line has no text */
    struct flow_sample s;      /* if s.x.text_len is 0, all rows of the file are used */
    /* Reason for which the request is refused. If it is not refused, `code` is ERR_NONE.
     * Otherwise `field` is the name of the wrong member. */
    struct err refused;
};

/* Reads a line, which may contain any bytes. spec is a job whose model.shape is known. */
void flow_request_of_line(struct flow_request *r, const struct job_spec *spec, const char *line,
                          int64_t size);

/* Reads the caption [x.text_len, caption_channels] into out, and sets x.text_len and
 * x.text_width. out has room for the model's text_len rows. The parameter `manifest` is the
 * path of the file of requests. That file is beneath the parameter `root`. Fails as st_open
 * does. Also fails with ERR_INVALID, ERR_TOO_LARGE, ERR_CORRUPT or ERR_IO; the error is about
 * "text" or "text_len". */
int flow_request_caption(struct flow_request *r, const struct model_shape *m, const char *root,
                         const char *manifest, float *out, struct err *e);

#endif
