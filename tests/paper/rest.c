#include "tests/paper/report.h"

void paper_rest(void)
{
    report_section("Neither run nor accounted for",
                   "Throughput belongs to the devices it was measured on. What these claims rest "
                   "on, bytes and memory, is above.");
    report_unmeasured("tokens/s of the weak scaling table, of TP and RSA", "2105.13120, table 4",
                      "9261 to 26402", "needs 64 nodes with one P100 each");
    report_unmeasured("convergence of BERT-Large, SP 4 like TP 4", "2105.13120, appendix",
                      "similar curves",
                      "needs 50 000 steps; a job of `kind: \"verify\"` compares loss and every "
                      "gradient of P ranks with those of one");
    report_unmeasured("tokens/s of TNL-1B and 7B on 16 to 128 A100", "2404.02882, figures",
                      "up to 7.9e5", "needs the devices");
    report_unmeasured("memory of 4096K tokens on 128 A100-80", "2404.02882, figures",
                      "66.5 GB a device", "needs the devices; what 64 would hold is planned above");
    report_unmeasured("throughput against Ulysses on 128 H100", "2403.10266", "+32 to +75 %",
                      "needs the devices; the ratio of bytes is counted above");
}
