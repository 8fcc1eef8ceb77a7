#include "tests/paper/report.h"

void paper_rest(void)
{
    static const struct claim rows[] = {
        {.what = "tokens/s of the weak scaling table, of TP and RSA",
         .source = "2105.13120, table 4",
         .claimed_text = "9261 to 26402",
         .verdict = NOT_HERE,
         .why = "64 nodes with one P100 each; throughput of other devices says nothing about it"},
        {.what = "114K tokens with Linformer and RSA",
         .source = "2105.13120, text",
         .claimed_text = "114K on 32 P100",
         .verdict = NOT_HERE,
         .why = "the projected length and the head are not published, so no account can be made"},
        {.what = "convergence of BERT-Large, SP 4 like TP 4",
         .source = "2105.13120, appendix",
         .claimed_text = "similar curves",
         .verdict = NOT_HERE,
         .why = "50 000 steps; `kind: \"verify\"` shows more: loss and every gradient of P ranks "
                "equal "
                "those of one"},
        {.what = "tokens/s of TNL-1B and 7B on 16 to 128 A100",
         .source = "2404.02882, figures",
         .claimed_text = "up to 7.9e5",
         .verdict = NOT_HERE,
         .why = "needs the devices; bytes and memory are above"},
        {.what = "4096K tokens on 128 A100-80",
         .source = "2404.02882, figures",
         .claimed_text = "66.5 GB a device",
         .verdict = NOT_HERE,
         .why = "needs the devices; that bytes do not grow with the length is counted above"},
        {.what = "throughput against Ulysses on 128 H100",
         .source = "2403.10266",
         .claimed_text = "+32 to +75 %",
         .verdict = NOT_HERE,
         .why = "needs the devices; the ratio of bytes is counted above"},
    };
    report_section("Not reproducible here",
                   "Throughput belongs to the devices it was measured on. What stands behind these "
                   "claims, bytes and memory, is above.");
    report_table();
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) report_claim(&rows[i]);
}
