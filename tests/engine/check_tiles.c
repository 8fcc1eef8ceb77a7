/* check_tiles: runs check_kernels on the instruction set "amx" only. The operations are linked
 * with emulated tiles (kernels/cpu/amx_emu.h). A pass proves neither the hardware's results nor
 * its speed. */
#include "kernels/backend.h"

/* Tiles are emulated on every processor that can run the other instructions of the set. */
static const char *const *check_tiles_isas(void);
#define CHECK_NAME "check_tiles"
#define CHECK_ISAS check_tiles_isas()
#include "tests/engine/check_kernels.c"

static const char *const *check_tiles_isas(void)
{
    static const char *const none[] = {NULL}, *const amx[] = {"amx", NULL};
    if (!strcmp(be_isas()[0], "amx")) return amx;
    printf("not run: the row \"amx\" needs AVX-512 BF16, which %s lacks\n",
           TILES_BUILT ? "this processor" : "the compiler");
    return none;
}
