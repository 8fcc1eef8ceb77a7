/* hopper.cu: finds out whether the device has compute capability 9.0, and makes the maps of
 * tensors that copies need. */
#include <stdio.h>
#include "kernels/cuda/hopper.h"

/* ---- opening --------------------------------------------------------------------------------- */

#ifdef SEQD_EMU
static void *way_to_map(bool asked)
{
    static char emulated;
    /* the emulation runs the kernels for 8.0 unless 9.0 is asked for */
    return asked ? &emulated : NULL;
}
#else
/* Finds the driver's function that makes maps, which is in none of the libraries with which seqd
 * is linked. Returns NULL if the device's compute capability is not 9.0, or if the driver is too
 * old. */
static void *way_to_map(bool)
{
    int device = 0, major = 0, minor = 0;
    void *f = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDevice(&device) != cudaSuccess) return NULL;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (major != 9 || minor != 0) return NULL;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault,
                                         &found) != cudaSuccess)
        return NULL;
    return found == cudaDriverEntryPointSuccess ? f : NULL;
}
#endif

int hopper_open(struct cuda *c, const char *isa, struct err *e)
{
    const bool asked = isa && !strcmp(isa, "sm90");
    if (!isa || asked) c->hopper = way_to_map(asked);
    if (asked && !c->hopper)
        return err_set(
            e, ERR_UNSUPPORTED,
            "isa \"sm90\": the device is not of compute capability 9.0, or its driver is "
            "older than CUDA 12.0: leave isa out, or say \"sm80\"");
    return 0;
}

/* ---- maps ------------------------------------------------------------------------------------ */

#ifdef SEQD_EMU
hopper_map hopper_map_of(struct cuda *, struct tensor t, int64_t n_heads, int64_t D, int n_rows)
{
    assert((uintptr_t)t.data % 16 == 0 && t.ld % 8 == 0 && D % 8 == 0 && n_rows <= 256);
    return {(const char *)t.data, D, n_heads, t.rows, 2 * D, 2 * t.ld, n_rows};
}
#else
hopper_map hopper_map_of(struct cuda *c, struct tensor t, int64_t n_heads, int64_t D, int n_rows)
{
    typedef CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const cuuint64_t size[3] = {(cuuint64_t)D, (cuuint64_t)n_heads, (cuuint64_t)t.rows};
    const cuuint64_t stride[2] = {(cuuint64_t)D * 2, (cuuint64_t)t.ld * 2};
    const cuuint32_t box[3] = {HOPPER_STRIP, 1, (cuuint32_t)n_rows}, each[3] = {1, 1, 1};
    hopper_map map = {};
    const CUresult r = ((encode)c->hopper)(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data, size, stride, box, each,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS && c->failed.code == ERR_NONE)
        err_set(&c->failed, ERR_INTERNAL, "a map of [%lld, %lld x %lld] for copies: error %d",
                (long long)t.rows, (long long)n_heads, (long long)D, (int)r);
    return map;
}
#endif
