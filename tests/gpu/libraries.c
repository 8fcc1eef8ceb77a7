/* libraries: looks for the optional libraries in the same way as a rank. For each library it
 * prints a line, which is "NAME|found|version and path" or "NAME|not found|reason". It needs no
 * GPU. */
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
