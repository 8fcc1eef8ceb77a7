/* test_cores: tests which cores ranks get, on machines that hwloc simulates. */
#include "tests/lib/test.h"

#include <string.h>

#include "worker/agent/cores.h"

static struct cores cores;
static cpu_set_t got[64];

/* Reads a set of CPUs in the form that cores_print writes, such as "0-3,8". */
static cpu_set_t set_of(const char *text)
{
    cpu_set_t s;
    CPU_ZERO(&s);
    while (*text) {
        char *end;
        const long from = strtol(text, &end, 10);
        const long to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        for (long i = from; i <= to; i++) CPU_SET((size_t)i, &s);
        text = *end ? end + 1 : end;
    }
    return s;
}

static const char *text_of(const cpu_set_t *s)
{
    static char text[256];
    cores_print(s, text, sizeof text);
    return text;
}

static void machine(const char *synthetic, const char *allowed)
{
    struct err e = {0};
    const cpu_set_t set = set_of(allowed);
    CHECK_MSG(!cores_find(&cores, &set, synthetic, &e), "%s", e.text);
}

/* Checks that ranks of n_threads threads get the cores in `want`, which has a text for each rank.
 * If `want` is NULL, no rank must be bound. */
static void choice(const char *used, int n_ranks, int n_threads, const char *const *want)
{
    const cpu_set_t set = set_of(used);
    const bool chosen = cores_choose(&cores, &set, n_ranks, n_threads, got);
    CHECK(chosen == (want != NULL));
    for (int i = 0; chosen && i < n_ranks; i++) CHECK_STR(text_of(&got[i]), want[i]);
}
#define WANT(...) ((const char *const[]){__VA_ARGS__})

static void test_print(void)
{
    static const char *const texts[] = {"", "0", "1,3", "0-1", "0-3,8-11,1023"};
    char small[6];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const cpu_set_t s = set_of(texts[i]);
        CHECK_STR(text_of(&s), texts[i]);
    }
    const cpu_set_t s = set_of("0,2,4,6");
    cores_print(&s, small, sizeof small);
    CHECK_STR(small, "0,2,4");
}

/* Checks a machine of two packages with four cores each, whose two hardware threads have
 * successive numbers. */
static void test_nodes(void)
{
    machine("pack:2 numa:1 core:4 pu:2", "0-15");
    CHECK(cores.n == 8 && cores.core[0].node == 0 && cores.core[7].node == 1);
    choice("", 1, 1, WANT("0-1"));
    choice("", 4, 1, WANT("0-1", "2-3", "4-5", "6-7"));
    choice("", 2, 2, WANT("0-3", "4-7"));
    choice("", 8, 1, WANT("0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"));
    /* a rank is not spread over two nodes if one node has room for it */
    choice("", 2, 3, WANT("0-5", "8-13"));
    choice("", 1, 8, WANT("0-15"));
    choice("", 1, 6, WANT("0-11"));
}

static void test_beside_others(void)
{
    machine("pack:2 numa:1 core:4 pu:2", "0-15");
    /* uses the node that then has no free core */
    choice("0-3", 2, 1, WANT("4-5", "6-7"));
    choice("0-3", 3, 1, WANT("8-9", "10-11", "12-13")); /* the node that has room for all */
    choice("8-15", 4, 1, WANT("0-1", "2-3", "4-5", "6-7"));
    /* CPU 8 is one of the two threads of a core */
    choice("0-3,8", 5, 1, WANT("10-11", "12-13", "14-15", "4-5", "6-7"));
    choice("0-9", 4, 1, NULL);
    choice("", 9, 1, NULL);
    choice("", 2, 5, NULL);
    choice("0-15", 1, 1, NULL);
}

/* Checks that only those cores are used that a container or a batch system allows. */
static void test_allowed(void)
{
    machine("pack:2 numa:1 core:4 pu:2", "1,5-6,12");
    CHECK(cores.n == 4);
    choice("", 4, 1, WANT("1", "5", "6", "12"));
    choice("", 2, 1, WANT("1", "5"));
    choice("5", 1, 2, WANT("1,6"));
    choice("", 5, 1, NULL);
    struct err e = {0};
    const cpu_set_t none = set_of("64-70");
    CHECK(cores_find(&cores, &none, "pack:2 numa:1 core:4 pu:2", &e) && e.code == ERR_UNSUPPORTED);
    CHECK(cores_find(&cores, &none, "no machine", &e) && e.code == ERR_UNSUPPORTED);
}

static void test_one_node(void)
{
    machine("core:2 pu:1", "0-1");
    choice("", 2, 1, WANT("0", "1"));
    choice("0", 1, 1, WANT("1"));
    choice("0", 2, 1, NULL);
}

/* Checks the machine on which the test runs. Each core must be assigned to at most one rank, and
 * only CPUs that this process may use must be assigned. */
static void test_this_machine(void)
{
    struct err e = {0};
    cpu_set_t own, seen;
    CPU_ZERO(&seen);
    CHECK(!sched_getaffinity(0, sizeof own, &own));
    CHECK_MSG(!cores_find(&cores, &own, NULL, &e), "%s", e.text);
    for (int i = 0; i < cores.n; i++) {
        cpu_set_t both;
        CPU_AND(&both, &seen, &cores.core[i].cpus);
        CHECK(CPU_COUNT(&both) == 0);
        CPU_OR(&seen, &seen, &cores.core[i].cpus);
    }
    CHECK(CPU_EQUAL(&seen, &own));
}

int main(void)
{
    RUN(test_print);
    RUN(test_nodes);
    RUN(test_beside_others);
    RUN(test_allowed);
    RUN(test_one_node);
    RUN(test_this_machine);
    return test_done("cores");
}
