/* hardware.c: the members of "hardware" in a request for a plan, and their rules. */
#include <stddef.h>
#include "api/core/field.h"
#include "worker/plan/machine.h"

#define ROW(name, kind, least, most, def, text)                                                    \
    {                                                                                              \
        .path = #name, .type = kind, .offset = offsetof(struct hardware, name), .min = least,      \
        .max = most, .fallback = def, .help = text, .kinds = ~0u                                   \
    }
const struct field hardware_fields[] = {
    ROW(devices, FIELD_INT32, 1, JOB_MAX_RANKS, 0, "Devices in all: a rank each."),
    ROW(nodes, FIELD_INT32, 1, JOB_MAX_RANKS, 1,
        "Machines that share the devices evenly; default 1."),
    ROW(memory_gib, FIELD_DOUBLE, 1.0 / 1024, 1 << 20, 0, "Memory of a device, GiB."),
    ROW(tflops, FIELD_DOUBLE, 1e-6, 1e6, 0, "TFLOP/s that a device sustains; without, no times."),
    ROW(link_gbs, FIELD_DOUBLE, 1e-6, 1e6, 0, "GB/s that a device sends within its node."),
    ROW(link_us, FIELD_DOUBLE, 0, 1e6, 10, "Microseconds that a small message takes; default 10."),
    ROW(network_gbs, FIELD_DOUBLE, 0, 1e6, 0, "GB/s of a device between nodes; default link_gbs."),
    ROW(host_gbs, FIELD_DOUBLE, 1e-6, 1e6, 25,
        "GB/s of a device to and from its host's memory, for memory.offload; default 25."),
    {.path = NULL},
};

void hardware_defaults(struct hardware *h)
{
    *h = (struct hardware){.nodes = 1, .link_us = 10, .host_gbs = 25};
}

static int missing(struct err *e, const char *field, const char *what)
{
    return err_field(e, ERR_INVALID, field, "%s is missing: %s", field, what);
}

int hardware_check(const struct hardware *h, struct err *e)
{
    if (!h->devices) return missing(e, "hardware.devices", "how many devices there are in all");
    if (!(h->memory_gib > 0))
        return missing(e, "hardware.memory_gib", "the memory of a device, in GiB");
    if (h->devices % h->nodes)
        return err_field(e, ERR_INVALID, "hardware.nodes",
                         "hardware.nodes %d does not divide hardware.devices %d: every node has "
                         "as many devices",
                         h->nodes, h->devices);
    if (h->tflops > 0 && h->devices > 1 && !(h->link_gbs > 0))
        return missing(e, "hardware.link_gbs",
                       "without it no time can be estimated; leave hardware.tflops out to plan "
                       "memory and bytes alone");
    return 0;
}
