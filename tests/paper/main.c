/* main.c: `make paper`, which compares the published claims of RSA, LASP and DSP with counted runs
 * on this machine, the planner, and accounts. Each row tells its kind. The argument is the
 * directory to write to. The exit status is 1 if a count or a plan is wrong. */
#include "tests/paper/report.h"

int main(int argc, char **argv)
{
    report_open(argc > 1 ? argv[1] : "build/paper");
    paper_rsa();
    paper_ring();
    paper_memory();
    paper_lasp();
    paper_fits();
    paper_dsp();
    paper_rest();
    return report_close() ? 1 : 0;
}
