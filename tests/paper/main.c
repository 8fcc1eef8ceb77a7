/* main.c: the program of `make paper`. It compares the published claims of RSA, LASP and DSP with
 * counted runs on this machine, with the planner, and with accounts. Each row of its report names
 * which of these it is compared with. The argument is the directory to write to. The exit status
 * is 1 if a count or a plan is wrong. */
#include "tests/lib/test.h"
#include "tests/paper/report.h"

int main(int argc, char **argv)
{
    test_fresh_memory = true;
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
