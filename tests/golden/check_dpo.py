#!/usr/bin/env python3
"""Compares dpo/NAME.safetensors, which make_dpo_golden.py writes, with trl.DPOTrainer: loss, rewards, margin, accuracy
and norm of five steps, the references, and what the file has of gradients and weights. The trainer collates the ids of
the file and computes each loss; torch.optim.AdamW updates the weights. In float64, to which all that names float32 is
changed, values and norms are the file's to 1e-10. In float32 they are to 1e-5.

usage: check_dpo.py [NAME ...]      pip install torch transformers peft trl==1.16.0

Each pair is a batch of its own, and a step has the mean over its pairs. trl has the smoothed loss of a pair in loss_type
"aot" of one pair, and takes the mean loss of the chosen answers over all tokens of a batch ("sft", which was
`rpo_alpha`). It divides ipo's log-probability of an answer without a prompt by all of its tokens, and so by one that
nothing predicts; that token is taken out of the mask here. It adds the balancing loss of a mixture of experts, which is
switched off.

At last it prints how far trl's norms of float32 are from those of float64 at a rate of 1e-2. An update is
lr * m / (sqrt(v) + eps), so that an element whose gradient is about eps moves by its rounding. With the usual eps of
1e-8 such elements alone put the norms of later steps off: of six Llamas of 64 columns, ten steps on pairs of texts, by
up to 3.6e-5 in trl and 3.8e-5 in seqd, both against trl in float64, and with eps 1e-5 by 7e-6 and 6e-6. The files have
eps 1e-4."""
import sys
import tempfile

import torch
from datasets import Dataset
from peft import PeftModel
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer
from trl.kernels import chunked_logprob

import make_dpo_golden as golden

LOSSES = {"sigmoid": {"loss_type": ["aot", "sft"], "loss_weights": [1.0, 0.2], "beta": 0.3, "label_smoothing": 0.1},
          "ipo": {"loss_type": ["ipo"], "beta": 0.4}}
METRICS = ("chosen", "rejected", "margins", "accuracies")
# largest difference of values and norms, and of tensors, which the file has in float32
ALLOWED = {torch.float32: (1e-5, 1e-5), torch.float64: (1e-10, 1e-7)}


def pairs_of(file):
    """Returns, for each pair, its sample and what trl's collator takes."""
    answers, found = file["answers"].tolist(), []
    for k in range(0, len(answers), 2):
        ids = [file["ids"][n, at:at + length].tolist() for n, at, length, _ in answers[k:k + 2]]
        given = answers[k][3]
        found.append((answers[k][0], {"prompt_ids": ids[0][:given], "chosen_ids": ids[0][given:],
                                      "rejected_ids": ids[1][given:], "ref_chosen_logps": file["reference"][k].item(),
                                      "ref_rejected_logps": file["reference"][k + 1].item()}))
    return found


def trainer_of(model, way):
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(258)}, unk_token="t0"))
    words = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t256", pad_token="t257")
    some = Dataset.from_list([{"prompt": "t1", "chosen": "t2", "rejected": "t3"}])
    more = {"router_aux_loss_coef": 0.0} if hasattr(model.config, "router_aux_loss_coef") else {}
    args = DPOConfig(tempfile.mkdtemp(), bf16=False, use_cpu=True, report_to=[], gradient_checkpointing=False,
                     **LOSSES[way], **more)
    trainer = DPOTrainer(model, args=args, train_dataset=some, processing_class=words)
    trainer.precompute_ref_logps = True  # the batch has them
    return trainer


def batch_of(trainer, pair):
    batch = trainer.data_collator([pair])
    batch["completion_mask"][:, 0] = 0
    return batch


def off(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def in_float64(names):
    """Makes float32 mean float64 in the models and in what trl computes of their head. There is no way back."""
    torch.set_default_dtype(torch.float64)
    for name in names:
        golden.lm.CASES[name]()
    golden.lm.in_float64(chunked_logprob)
    torch.Tensor.float = torch.Tensor.double


def model_of(name, dtype):
    return AutoModelForCausalLM.from_pretrained(golden.HERE / name, dtype=dtype, attn_implementation="eager",
                                                experts_implementation="eager")


def step_of(trainer, pairs, step):
    """Returns the loss of a step, after its backward pass."""
    trainer._metrics["train"].clear()
    drawn = {(2 * step + i) % len(golden.SAMPLES) for i in range(2)}
    losses = [trainer.compute_loss(trainer.model, batch_of(trainer, pair)) for n, pair in pairs if n in drawn]
    loss = sum(losses) / len(losses)
    loss.backward()
    return loss


def check(name, way, file, key, dtype):
    model = model_of(name, dtype)
    if key == "adapter":
        model = PeftModel.from_pretrained(model, golden.HERE / "adapter" / name, is_trainable=True,
                                          autocast_adapter_dtype=False).to(dtype)
    trainer, pairs = trainer_of(model, way), pairs_of(file)
    model = trainer.model.train()
    params = [p for p in model.parameters() if p.requires_grad]
    update = golden.adamw(params)
    wrong, tensors = [], {}
    if key != "adapter":
        with torch.no_grad():
            got = [trainer.compute_ref_log_probs(model, batch_of(trainer, pair)) for _, pair in pairs]
        offset = torch.tensor([1.5 - k % 4 for k in range(2 * len(pairs))])
        wrong.append(off(torch.tensor(got).flatten(), file["reference"] - offset))
    for step in range(golden.STEPS):
        update.zero_grad()
        loss = step_of(trainer, pairs, step)
        if step == 0:
            tensors |= {"grad:" + k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
        norm = torch.nn.utils.clip_grad_norm_(params, golden.CLIP)
        update.step()
        values = [trainer._metrics["train"]["rewards/" + m] for m in METRICS]
        got = torch.tensor([loss.item()] + [sum(v) / len(v) for v in values])
        wrong.append((got - file[key + ".value"][step]).abs().div(file[key + ".value"][step].abs().clamp(min=1)).max().item())
        wrong.append(abs(norm.item() / file[key + ".norm"][step].item() - 1))
    tensors |= {"weight:" + k: p.detach() for k, p in model.named_parameters()}
    kept = [k for k in file if k in tensors and key == "sigmoid"]
    apart = [off(tensors[k], file[k]) for k in kept] or [0]
    print(f"{name} {key} {dtype}: values at most {max(wrong):.2g} off, {len(kept)} tensors {max(apart):.2g}")
    assert max(wrong) <= ALLOWED[dtype][0] and max(apart) <= ALLOWED[dtype][1], (wrong, apart)


def norms_of(name, eps, dtype):
    """Returns the norms of steps at a rate at which weights move far."""
    trainer, pairs = trainer_of(model_of(name, dtype), "sigmoid"), pairs_of(file_of(name))
    params, norms = list(trainer.model.train().parameters()), []
    update = torch.optim.AdamW(params, lr=1e-2, betas=golden.BETAS, eps=eps, weight_decay=0, foreach=False)
    for step in range(2 * golden.STEPS):
        update.zero_grad()
        step_of(trainer, pairs, step)
        norms.append(torch.nn.utils.clip_grad_norm_(params, golden.CLIP).item())
        update.step()
    return norms


def file_of(name):
    return load_file(golden.HERE / "dpo" / f"{name}.safetensors")


def check_all(names, dtype):
    for name in names:
        arrays = file_of(name)
        for way in golden.WAYS:
            check(name, way, arrays, way, dtype)
        if name in golden.ADAPTED:
            check(name, "sigmoid", arrays, "adapter", dtype)


if __name__ == "__main__":
    cases = sys.argv[1:] or list(golden.KEPT)
    check_all(cases, torch.float32)
    rounded = {(name, eps): norms_of(name, eps, torch.float32) for name in cases for eps in (1e-8, 1e-4)}
    in_float64(cases)
    check_all(cases, torch.float64)
    for (name, eps), norms in rounded.items():
        apart = [abs(a / b - 1) for a, b in zip(norms, norms_of(name, eps, torch.float64))]
        print(f"{name} eps {eps}: norms of float32 at most {max(apart):.2g} off those of float64")
