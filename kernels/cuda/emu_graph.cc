/* emu_graph.cc: CUDA's graphs on the host. While a host thread captures a stream, its launches are
 * kept with their arguments. They run when the graph is launched. A call that is not allowed
 * during a capture, or a use of an object that was destroyed, aborts. */
#include "kernels/cuda/emu.h"

#include <atomic>
#include <mutex>
#include <set>
#include <vector>

struct emu_stream {
};
struct emu_graph {
    std::vector<std::function<void()>> nodes;
};
struct emu_exec {
    struct emu_graph graph;
};

static thread_local struct {
    cudaStream_t stream;
    struct emu_graph *graph; /* NULL if nothing is captured */
} capture;
static struct {
    std::mutex one;
    std::set<struct emu_exec *> live;
} execs;
static std::atomic<int> failing;

/* Makes a step of graphs fail; tests find this function by its name, like emu_stall. If `where` is
 * 1, no capture can begin. If it is 2, the end of a capture fails. If it is 3, no graph can be
 * made of a capture. If it is 4, no graph can be launched. If it is 0, no step fails. */
extern "C" __attribute__((visibility("default"))) void emu_graphs_fail(int where)
{
    failing = where;
}

void emu_outside(const char *what)
{
    if (capture.graph) emu_fail(what);
}

void emu_work(const std::function<void()> &work)
{
    if (capture.graph)
        capture.graph->nodes.push_back(work);
    else
        work();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int)
{
    *s = new emu_stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return cudaSuccess;
}

/* ---- capture --------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    emu_outside("a capture in another");
    if (failing == 1) return cudaErrorStreamCaptureUnsupported;
    capture = {s, new emu_graph};
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    if (!capture.graph || capture.stream != s) emu_fail("the stream is not captured");
    *g = failing == 2 ? NULL : capture.graph;
    if (!*g) delete capture.graph;
    capture.graph = NULL;
    return *g ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long)
{
    if (failing == 3) return cudaErrorMemoryAllocation;
    const std::lock_guard<std::mutex> lock(execs.one);
    *x = new emu_exec{*g};
    execs.live.insert(*x);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}

static void check_live(cudaGraphExec_t x)
{
    const std::lock_guard<std::mutex> lock(execs.one);
    if (!execs.live.count(x)) emu_fail("a graph that is no more");
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t)
{
    emu_outside("a graph in a capture");
    check_live(x);
    if (failing == 4) return cudaErrorMemoryAllocation;
    for (const std::function<void()> &node : x->graph.nodes) node();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    check_live(x);
    const std::lock_guard<std::mutex> lock(execs.one);
    execs.live.erase(x);
    delete x;
    return cudaSuccess;
}
