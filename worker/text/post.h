/* post.h: adds the ids that the post-processor of a tokenizer.json puts around a text. */
#ifndef SEQD_TEXT_POST_H
#define SEQD_TEXT_POST_H

#include "worker/text/json.h"

#define POST_IDS 64

struct post {
    int32_t before[POST_IDS], after[POST_IDS];
    int n_before, n_after;
};

/* the caller must set *p to zero before the call */
int post_open(struct post *p, struct json j, struct err *e);

#endif
