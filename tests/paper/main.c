/* make paper: the published claims of RSA, LASP and DSP against the planner and against counted
 * runs on this machine. Argument: where to write. Exit status 1 when a count differs from its
 * formula. */
#include "tests/paper/report.h"

int main(int argc, char **argv)
{
    report_open(argc > 1 ? argv[1] : "build/paper");
    paper_rsa();
    paper_ring();
    paper_memory();
    paper_lasp();
    paper_dsp();
    paper_rest();
    return report_close() ? 1 : 0;
}
