#!/usr/bin/env python3
"""make_quant.py: tests/golden/quant.bin, blocks of 32 values and their Q8_0 and Q4_1 by the package
gguf, which follows llama.cpp's reference bit by bit.

    python3 tests/golden/make_quant.py > tests/golden/quant.bin

Each block is 128 bytes of fp32, 34 of Q8_0 (scale, codes) and 20 of Q4_1 (scale, least, codes of k
in the low halves and of k + 16 in the high ones). Little-endian.
"""
import sys

import numpy as np
from gguf.quants import Q4_1, Q8_0

rng = np.random.default_rng(5)
blocks = [rng.normal(0, scale, 32) for scale in (1, 0.02, 3e-3, 40, 1e-4, 1e-6, 1e-9)
          for _ in range(6)]
blocks += [np.zeros(32), np.full(32, 0.25), np.full(32, -3.0), np.arange(32) - 15.5,
           np.where(np.arange(32) == 7, 5.0, 0), np.where(np.arange(32) == 31, -2e-7, 0),
           np.abs(rng.normal(0, 1, 32)), -np.abs(rng.normal(0, 1, 32)),
           (np.arange(32) % 2 * 2 - 1) * 0.5, np.linspace(-127, 127, 32),
           np.linspace(0, 15, 32), np.where(np.arange(32) < 16, 60000.0, -60000.0)]
x = np.array(blocks, dtype=np.float32)
while len(x) % 16:
    x = np.vstack([x, rng.normal(0, 1, 32).astype(np.float32)])
with np.errstate(all="ignore"):
    q8, q4 = Q8_0.quantize_blocks(x), Q4_1.quantize_blocks(x)
for a, b, c in zip(x, q8, q4):
    sys.stdout.buffer.write(a.astype("<f4").tobytes() + b.tobytes() + c.tobytes())
