"""The dropout of adapters' inputs as seqd defines it, written from that definition for make_adapter_golden.py.

A value of the input of lora_A is dropped if a word of Philox4x32-10 (Salmon et al., SC 2011) is below rate * 2^32;
other values are divided by 1 - rate. The counter of the word is {token, channel / 4, layer * 2^16 + number, sample},
and the word is lane (channel mod 4). Token is the position in the sequence, sample counts all samples of the training,
and number is 0x8000 plus the place of lora_A among the tensors of its layer. The tensors of the base come first there,
then lora_A and lora_B of each product, in the order of PRODUCTS: a layer computes keys before queries. Philox's key is words 0
and 1 of Philox(key {seed, seed / 2^32}, counter {step, step / 2^32, 0x64726f70, 0}), and the first step is 0."""
import itertools
import math
import re

import numpy as np
import torch

ROUNDS, MULTIPLIERS, WEYL = 10, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
PRODUCTS = ("qkv_proj", "k_proj", "v_proj", "q_proj", "o_proj", "gate_up_proj", "gate_proj", "up_proj", "down_proj")
LOW, HALF, ADAPTERS, DROP = 0xFFFFFFFF, 32, 0x8000, 0x64726F70


def philox(key, counter):
    """Returns the four words of each counter. The members of counter are numbers or arrays of numbers."""
    c = [np.asarray(x, dtype=np.uint64) for x in counter]
    k = list(key)
    for _ in range(ROUNDS):
        a, b = c[0] * np.uint64(MULTIPLIERS[0]), c[2] * np.uint64(MULTIPLIERS[1])
        c = [(b >> np.uint64(HALF)) ^ c[1] ^ np.uint64(k[0]), b & np.uint64(LOW),
             (a >> np.uint64(HALF)) ^ c[3] ^ np.uint64(k[1]), a & np.uint64(LOW)]
        k = [(k[i] + WEYL[i]) & LOW for i in range(2)]
    return c


def check_philox():
    """Compares with the answers that the authors of Philox publish (Random123, kat_vectors)."""
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    for key, counter, want in (
            ((0, 0), (0,) * 4, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
            ((LOW, LOW), (LOW,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
            ((0xA4093822, 0x299F31D0), pi, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1))):
        assert tuple(int(x) for x in philox(key, counter)) == want


class Place:
    """The tokens that the model computes now: the step, the sample and the position of the first of them."""

    def __init__(self, seed):
        self.seed, self.step, self.sample, self.begin = seed, 0, 0, 0
        self.masks = {}  # which values are kept, by step, sample, layer and number

    def key(self):
        words = philox((self.seed & LOW, self.seed >> HALF), (self.step & LOW, self.step >> HALF, DROP, 0))
        return int(words[0]), int(words[1])


class Keyed(torch.nn.Module):
    """Stands for the dropout of one adapter."""

    def __init__(self, place, layer, number, rate):
        super().__init__()
        self.place, self.layer, self.number, self.rate = place, layer, number, rate

    def forward(self, x):
        rows, cols = x.shape[-2:]
        at = self.place
        token = at.begin + np.arange(rows)[:, None]
        quad = np.arange((cols + 3) // 4)[None, :]
        words = philox(at.key(), (token, quad, self.layer << 16 | self.number, at.sample))
        kept = np.stack(words, -1).reshape(rows, -1)[:, :cols] >= math.ceil(self.rate * 2 ** HALF)
        self.place.masks.setdefault((at.step, at.sample, self.layer, self.number), []).append(kept)
        return x * torch.from_numpy(kept).to(x.dtype) / (1 - self.rate)


def install(model, place, rate):
    """Gives each adapter of a peft model its keyed dropout."""
    check_philox()
    layers = {}
    for name, m in model.named_modules():
        at = re.search(r"\.layers\.(\d+)\.", name)
        if at and hasattr(m, "lora_dropout"):
            layers.setdefault(int(at[1]), []).append((PRODUCTS.index(name.split(".")[-1]), m))
    for layer, products in layers.items():
        base = sum(f".layers.{layer}." in k and ".lora_" not in k for k, _ in model.named_parameters())
        for i, (_, m) in enumerate(sorted(products, key=lambda x: x[0])):
            m.lora_dropout["default"] = Keyed(place, layer, ADAPTERS + base + 2 * i, rate)


def check_masks(place, rate):
    """Checks that each mask drops the rate's part of its values, and that two masks agree as often as independent ones
    do, within five standard deviations."""
    masks = {k: np.concatenate(v) for k, v in place.masks.items()}
    assert len(masks) > 1
    for kept in masks.values():
        assert abs(kept.mean() - (1 - rate)) < 5 * math.sqrt(rate * (1 - rate) / kept.size)
    both = (1 - rate) ** 2 + rate ** 2
    for a, b in itertools.combinations(masks.values(), 2):
        n = min(a.shape[1], b.shape[1])
        same = (a[:, :n] == b[:, :n]).mean()
        assert abs(same - both) < 5 * math.sqrt(both * (1 - both) / a[:, :n].size)
