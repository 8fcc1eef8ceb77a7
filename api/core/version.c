/* version.c: returns the version, with the revision that the build passes in SEQD_REVISION. */
#include "api/core/version.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#ifndef SEQD_REVISION
#define SEQD_REVISION "unknown"
#endif

/* The revision is in a separate section of fixed size. If two commits have the same code, their
 * builds differ only in this section (tests/kept.sh). */
#define OF_REVISION __attribute__((section(".seqd.revision"), used))
static const char revision[64] OF_REVISION = SEQD_REVISION;
static const char text[96] OF_REVISION = SEQD_VERSION " (" SEQD_REVISION ")";

const char *version_revision(void)
{
    return revision;
}

const char *version_text(void)
{
    return text;
}

/* Copies the build id from the notes of a segment. Returns whether it is there. */
static int find_build(struct dl_phdr_info *info, size_t size, void *out)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_NOTE) continue;
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)at;
            const char *name = at + sizeof *n, *desc = name + (n->n_namesz + 3) / 4 * 4;
            at = desc + (n->n_descsz + 3) / 4 * 4;
            if (n->n_type != NT_GNU_BUILD_ID || n->n_namesz != 4 || memcmp(name, "GNU", 4))
                continue;
            const size_t n_id = n->n_descsz < VERSION_BUILD_SIZE ? n->n_descsz : VERSION_BUILD_SIZE;
            memcpy(out, desc, n_id);
            return 1;
        }
    }
    return -1; /* the first object is the program, and no other counts */
}

bool version_build(uint8_t out[VERSION_BUILD_SIZE])
{
    memset(out, 0, VERSION_BUILD_SIZE);
    return dl_iterate_phdr(find_build, out) > 0;
}
