/* allocation.c: reads Slurm's variables and the control groups, keeps the smallest values, and
 * matches the words of engines with the driver's GPUs. */
#include "worker/agent/allocation.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "api/wire.h"
#include "worker/agent/limits.h"

#define MIB ((int64_t)1 << 20)

static const char *variable(const struct allocation_world *w, const char *name)
{
    const size_t n = strlen(name);
    for (char *const *v = w->env; *v; v++)
        if (!strncmp(*v, name, n) && (*v)[n] == '=') return *v + n + 1;
    return NULL;
}

/* Reads a variable whose value is a number from min to max. Returns 1 if the variable is set, 0 if
 * it is not set or is empty, and -1 if it has any other value. */
static int number(const struct allocation_world *w, const char *name, int64_t min, int64_t max,
                  int64_t *out, struct err *e)
{
    const char *text = variable(w, name);
    char *end;
    if (!text || !*text) return 0;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno && *out >= min && *out <= max) return 1;
    return err_set(e, ERR_INVALID,
                   "%s=%.80s: want a whole number from %lld to %lld: unset it, or leave out --auto",
                   name, text, (long long)min, (long long)max);
}

static void at_most(struct allocation_value *v, int64_t n, const char *from)
{
    if (n < v->n) *v = (struct allocation_value){n, from};
}

/* ---- cores and memory ------------------------------------------------------------------------ */

static int find_cores(struct allocation *a, const struct allocation_world *w, struct err *e)
{
    static const char *const names[] = {"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"};
    a->cores = (struct allocation_value){w->n_cores, "the CPU set"};
    at_most(&a->cores, limits_cores(w->root), "the control group");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t n;
        const int rc = number(w, names[i], 1, 1 << 20, &n, e);
        if (rc < 0) return -1;
        if (rc) at_most(&a->cores, n, names[i]);
    }
    return 0;
}

/* Finds the memory. Slurm's values are in MiB. The value 0 means all memory of the node. */
static int find_memory(struct allocation *a, const struct allocation_world *w, struct err *e)
{
    static const int64_t most = (int64_t)1 << 40;
    int64_t n, n_cpus = a->cores.n;
    a->memory = (struct allocation_value){w->memory_size, "the machine"};
    at_most(&a->memory, limits_memory(w->root), "the control group");
    int rc = number(w, "SLURM_MEM_PER_NODE", 0, most, &n, e);
    if (rc > 0 && n) at_most(&a->memory, n * MIB, "SLURM_MEM_PER_NODE");
    if (rc < 0 || number(w, "SLURM_CPUS_ON_NODE", 1, 1 << 20, &n_cpus, e) < 0) return -1;
    rc = number(w, "SLURM_MEM_PER_CPU", 0, most, &n, e);
    if (rc > 0 && n && n <= most / n_cpus)
        at_most(&a->memory, n * n_cpus * MIB, "SLURM_MEM_PER_CPU");
    return rc < 0 ? -1 : 0;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static const char digits[] = "0123456789";

static bool is_index(const char *word)
{
    return *word && strlen(word) < 6 && !word[strspn(word, digits)];
}

static bool is_gpu(const char *word)
{
    static const char legal[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/";
    return (!strncmp(word, "GPU-", 4) || !strncmp(word, "MIG-", 4)) && !word[strspn(word, legal)];
}

/* Returns true if text is one of the words by which engines state that the job has no GPU. */
static bool says_none(const char *text)
{
    static const char *const words[] = {"", "-1", "NoDevFiles", "none", "void"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i])) return true;
    return false;
}

static int find_words(struct allocation *a, const char *name, const char *text, struct err *e)
{
    a->gpus_from = name;
    if (says_none(text)) {
        a->gpus = ALLOCATION_NONE;
        return 0;
    }
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, ",");
        if (a->n_words == GPU_MAX)
            return err_set(e, ERR_INVALID, "%s names more than %d GPUs: give seqw fewer of them",
                           name, GPU_MAX);
        char *word = a->word[a->n_words++];
        snprintf(word, ALLOCATION_WORD, "%.*s", (int)(n < 1000 ? n : 1000), p);
        if (n >= ALLOCATION_WORD ||
            !(is_index(word) || (a->gpus == ALLOCATION_VISIBLE && is_gpu(word))))
            return err_set(
                e, ERR_INVALID, "%s: \"%s\" is not a GPU: want %s, between commas; empty for none",
                name, word,
                a->gpus == ALLOCATION_VISIBLE ? "indices or UUIDs (GPU-..., MIG-...)" : "indices");
        p += n;
        if (!*p) return 0;
    }
}

/* Finds the GPUs. If Slurm runs this process and no variable names GPUs, the allocation has no
 * GPUs. In that case the GPUs that the driver shows belong to other jobs. */
static int find_gpus(struct allocation *a, const struct allocation_world *w, struct err *e)
{
    static const char *const ids[] = {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"};
    const char *text = variable(w, "CUDA_VISIBLE_DEVICES");
    a->gpus = ALLOCATION_VISIBLE;
    if (text) return find_words(a, "CUDA_VISIBLE_DEVICES", text, e);
    a->gpus = ALLOCATION_IDS;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if ((text = variable(w, ids[i]))) return find_words(a, ids[i], text, e);
    const bool slurm = variable(w, "SLURM_JOB_ID");
    a->gpus = slurm ? ALLOCATION_NONE : ALLOCATION_ALL;
    a->gpus_from = slurm ? "a job of Slurm without GPUs" : "the driver";
    return 0;
}

/* Returns the position, in list, of the GPU that the parameter `word` names. The word is an
 * index, or the beginning of a UUID. Returns -1 if there is no such GPU, and -2 if there are
 * several. */
static int place(const char *word, const struct gpu *list, int n)
{
    int at = -1;
    char uuid[ALLOCATION_WORD];
    if (is_index(word)) return atoi(word) < n ? atoi(word) : -1;
    snprintf(uuid, sizeof uuid, "%.*s", (int)strcspn(word, "/"), word);
    const char *whole = strncmp(uuid, "MIG-GPU-", 8) ? uuid : uuid + 4;
    for (int i = 0; i < n; i++) {
        if (strncmp(list[i].uuid, whole, strlen(whole))) continue;
        if (at >= 0) return -2;
        at = i;
    }
    return at;
}

/* Returns true if the word names a part of a GPU in the newer form. In this form the word does
 * not show to which GPU the part belongs. Such a word matches all partitioned GPUs, so that
 * users see why no rank gets a GPU. */
static bool is_nameless_part(const char *word)
{
    return !strncmp(word, "MIG-", 4) && strncmp(word, "MIG-GPU-", 8);
}

static bool is_in(const int *list, int n, int at)
{
    for (int i = 0; i < n; i++)
        if (list[i] == at) return true;
    return false;
}

static int take(const struct allocation *a, const char *word, const struct gpu *list, int n,
                int out[GPU_MAX], int m, struct err *e)
{
    if (is_nameless_part(word)) {
        for (int i = 0; i < n; i++)
            if (list[i].health == GPU_MIG && !is_in(out, m, i)) out[m++] = i;
        return m;
    }
    const int at = place(word, list, n);
    if (at == -2)
        return err_set(e, ERR_INVALID,
                       "%s: \"%s\" begins the UUID of several GPUs: write more of it", a->gpus_from,
                       word);
    if (at < 0)
        return err_set(e, ERR_INVALID,
                       "%s: \"%s\" is none of the %d GPUs that the driver shows here", a->gpus_from,
                       word, n);
    if (is_in(out, m, at) && !strncmp(word, "MIG-", 4)) return m;
    if (is_in(out, m, at))
        return err_set(e, ERR_INVALID, "%s: \"%s\" is a GPU named before it: name each once",
                       a->gpus_from, word);
    out[m++] = at;
    return m;
}

int allocation_match(const struct allocation *a, const struct gpu *list, int n, int out[GPU_MAX],
                     struct err *e)
{
    int m = 0;
    if (a->gpus == ALLOCATION_NONE) return 0;
    /* If the driver shows as many GPUs as the engine has allocated, these GPUs are exactly the
     * allocated GPUs, because the engine hides the device files of all other GPUs. In that
     * case the indices are not compared, because they may count all GPUs of the machine, while
     * the driver counts only the GPUs that it shows. */
    const bool all = a->gpus == ALLOCATION_ALL || (a->gpus == ALLOCATION_IDS && a->n_words == n);
    for (int i = 0; all && i < n; i++) out[m++] = i;
    for (int i = 0; !all && i < a->n_words; i++)
        if ((m = take(a, a->word[i], list, n, out, m, e)) < 0) return -1;
    return m;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Makes a name from the node, the job and the step, because two agents with different
 * allocations may run on one node. */
static int find_name(struct allocation *a, const struct allocation_world *w, struct err *e)
{
    static const char legal[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
    const char *node = variable(w, "SLURMD_NODENAME");
    static const char *const names[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_LOCALID"};
    int64_t n[3] = {0};
    int there[3], size = 0;
    char tail[48] = "";
    if (!node || !*node) return 0;
    if (node[strspn(node, legal)] || *node == '.')
        return err_set(e, ERR_INVALID,
                       "SLURMD_NODENAME=%.80s: want letters, digits, '.', '_' and '-': give --name",
                       node);
    for (int i = 0; i < 3; i++)
        if ((there[i] = number(w, names[i], 0, UINT32_MAX, &n[i], e)) < 0) return -1;
    /* leave the number of the task out of the name of the first task on the node */
    there[2] = there[2] && n[2];
    for (int i = 0; i < 3; i++)
        if (there[i])
            size += snprintf(tail + size, sizeof tail - (size_t)size, ".%lld", (long long)n[i]);
    const size_t room = sizeof a->name - 1 - (size_t)size, len = strlen(node);
    memcpy(a->name, node, len < room ? len : room); /* the bytes of the array after the name
                                                     * are 0 already */
    memcpy(a->name + (len < room ? len : room), tail, (size_t)size);
    a->name_from = "SLURMD_NODENAME";
    return 0;
}

static int find_end(struct allocation *a, const struct allocation_world *w, struct err *e)
{
    const char *name = "SLURM_JOB_END_TIME";
    const int rc = number(w, name, 1, WIRE_MAX_TIME_S, &a->end.n, e);
    a->end.from = rc > 0 ? name : "";
    return rc < 0 ? -1 : 0;
}

int allocation_find(struct allocation *a, const struct allocation_world *w, struct err *e)
{
    *a = (struct allocation){.name_from = ""};
    if (find_cores(a, w, e) || find_memory(a, w, e) || find_gpus(a, w, e)) return -1;
    return find_name(a, w, e) || find_end(a, w, e) ? -1 : 0;
}

struct allocation_value allocation_slots(const struct allocation *a, const struct gpu *mine, int n,
                                         int64_t most)
{
    struct allocation_value slots = {0, "GPUs"};
    for (int i = 0; i < n; i++) slots.n += mine[i].health != GPU_MIG;
    if (!slots.n) slots = (struct allocation_value){a->cores.n, "cores"};
    if (slots.n > most) slots.n = most;
    return slots;
}

int64_t allocation_margin_s(int64_t end_s, int64_t now_s, int64_t margin_s)
{
    const int64_t most = end_s > now_s ? (end_s - now_s) / 4 : 0;
    return margin_s < most ? margin_s : most;
}

void allocation_say(const struct allocation *a, bool driver, int n_gpus,
                    const struct allocation_value *slots, const char *name)
{
    if (a->n_words && !driver)
        log_warn("agent.auto", "text=\"%s names GPUs, and there is no driver: none is offered\"",
                 a->gpus_from);
    log_info("agent.auto",
             "cores=%lld cores_from=\"%s\" memory_mib=%lld memory_from=\"%s\" gpus=%d "
             "gpus_from=\"%s\" slots=%lld slots_from=\"%s\" name=%s name_from=\"%s\" end=%lld "
             "end_from=\"%s\"",
             (long long)a->cores.n, a->cores.from, (long long)(a->memory.n / MIB), a->memory.from,
             n_gpus, a->gpus_from, (long long)slots->n, slots->from, name,
             !*a->name || strcmp(name, a->name) ? "--name or the host" : a->name_from,
             (long long)a->end.n, a->end.from);
}
