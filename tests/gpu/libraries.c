/* libraries: looks for the optional libraries in the way of a rank. For each it prints a line
 * NAME|found, or not found|version and path, or the reason. It needs no GPU. */
#include <stdio.h>
#include "api/core/library.h"

int main(void)
{
    for (int id = 0; id < LIBRARY_N; id++) {
        struct library l;
        struct err e = {0};
        const int rc = library_open(&l, (enum library_id)id, &e);
        printf("%s|%s|%s\n", library_name((enum library_id)id), rc ? "not found" : "found",
               rc ? e.text : l.text);
    }
    return 0;
}
