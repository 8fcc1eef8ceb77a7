/* linear_bwd.cu: the backward of linear attention, which is three walks of linear.h. */
#include "kernels/cuda/linear.h"

void cuda_linear_bwd(struct be *be, const struct linear_bwd_args *a)
{
    shape_linear_bwd(a);
    struct cuda *c = cuda_of(be);
    const struct linear_args *in = &a->in;
    const int64_t K = in->key_dim, V = in->value_dim;
    const struct linear_walk walks[] = {
        {in->k, in->q, a->d_o, a->dv, K, V, true, (float *)a->dm, in->scale},
        {in->v, a->d_o, in->q, a->dk, V, K, true, NULL, 0},
        {a->d_o, in->v, in->k, a->dq, V, K, false, NULL, 0},
    };
    linear_find_ends(c, in);
    linear_walk_run(c, in, &walks[0]);
    if (!a->dq.data) return;
    linear_walk_run(c, in, &walks[1]);
    linear_walk_run(c, in, &walks[2]);
}

void cuda_linear_enter_bwd(struct be *be, const struct linear_enter_bwd_args *a)
{
    shape_linear_enter_bwd(a);
    struct cuda *c = cuda_of(be);
    const struct linear_args *in = &a->in;
    const int64_t K = in->key_dim, V = in->value_dim;
    const float *state = (const float *)a->state, *d_state = (const float *)a->d_state;
    const struct linear_apply dq = {a->d_o, a->dq, state, K, V, true, false, in->scale};
    const struct linear_apply dk = {in->v, a->dk, d_state, K, V, true, true, 1};
    const struct linear_apply dv = {in->k, a->dv, d_state, K, V, false, true, 1};
    linear_find_ends(c, in);
    if (state) linear_apply_run(c, in, &dq);
    if (d_state) {
        linear_apply_run(c, in, &dk);
        linear_apply_run(c, in, &dv);
    }
}
