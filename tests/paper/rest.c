/* rest.c: lists the claims about which no section has a row, each with the reason. */
#include <stddef.h>
#include "tests/paper/report.h"

/* Claims that no row is about. They are from the papers of RSA, LASP and DSP, and from the papers
 * whose exchanges are rows in LASP's table. */
static const struct {
    const char *what, *source, *claimed, *why;
} claims[] = {
    {"tokens/s of the weak scaling table, of TP and RSA", "2105.13120, table 4", "9261 to 26402",
     "needs 64 nodes with one P100 each"},
    {"a sequence with sparse attention, to one that a single device holds with it",
     "2105.13120, abstract", "27 times longer: 114K tokens",
     "Linformer's attention is not in the product; whole attention of as many tokens is planned "
     "above"},
    {"a sequence of any length, with sparse attention", "2105.13120, abstract", "infinite",
     "Linformer's attention is not in the product"},
    {"convergence of BERT-Large, SP 4 like TP 4", "2105.13120, appendix", "similar curves",
     "needs 50 000 steps; a job of `kind: \"verify\"` compares loss and every gradient of P ranks "
     "with those of one"},
    {"LASP's speed to that of existing methods", "2404.02882, abstract", "significantly faster",
     "needs the devices; bytes that each sends are in `lasp_bytes.dat`"},
    {"tokens/s of TNL-1B and 7B on 16 to 128 A100", "2404.02882, figures", "up to 7.9e5",
     "needs the devices"},
    {"memory of 4096K tokens on 128 A100-80", "2404.02882, figures", "66.5 GB a device",
     "needs the devices; the memory of 64 is planned above"},
    {"TNL-7B on 64 A100: the longest sequences of LASP, Ulysses and Megatron-SP",
     "2404.02882, figures", "512K, 128K, 64K", "planned above for 1 B alone"},
    {"tokens/s with fused kernels and kept states, to that without", "2404.02882, table", "faster",
     "needs the devices"},
    {"convergence of 0.4 B models with and without LASP", "2404.02882, table",
     "losses within 0.015", "needs 50 000 steps; `kind: \"verify\"` compares P ranks with one"},
    {"speed of LASP-2 to LASP and to ring attention, 2048K tokens on 64 devices",
     "2502.07563, abstract", "+15.2 %, +36.6 %", "needs the devices; bytes are counted above"},
    {"throughput of DSP to that of Ulysses on 128 H100", "2403.10266, text", "+32 to +75 %",
     "needs the devices; the ratio of bytes is counted above"},
    {"throughput of DSP to that of other methods", "2403.10266, abstract", "up to 10 times",
     "needs the devices; the ratios of bytes to Megatron-SP and the ring are counted above"},
    {"throughput of DSP to that of earlier methods", "2403.10266, abstract of version 1",
     "+42.0 to +216.8 %", "needs the devices"},
};

void paper_rest(void)
{
    report_section("Neither run nor accounted for",
                   "Throughput belongs to the devices it was measured on. Bytes and memory, on "
                   "which such claims rest, are above.");
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        report_unmeasured(claims[i].what, claims[i].source, claims[i].claimed, claims[i].why);
}
