#!/usr/bin/env python3
"""Loads the curves of trainings of seqd with TensorBoard itself.

usage: check_tensorboard.py      in the root of the repository, after make

Starts a seqd --dev of its own and trains: one that runs to its end with evaluations, one whose ranks
are killed, one that is suspended and resumed, one in half floats. Of each, by seqctl pull:

  1. TensorBoard's reader (event_accumulator) has every tag, every step once, and the losses that
     seqctl metrics has;
  2. the same from its data provider, which is what the server asks, and after the newest file was cut
     in the middle of a record, less that record.

Not part of `make check`: it needs the Python package tensorboard.
BUILD=build/release"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy
from tensorboard.backend.event_processing import data_provider, event_accumulator, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.data.provider import RunTagFilter

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("BUILD", "build/release")).resolve()
STEP_TAGS = {"train/loss", "train/grad_norm", "train/lr", "speed/tokens_s", "speed/step_ms", "speed/comm_wait_ms",
             "memory/high"}
EVAL_TAGS = {"eval/loss", "eval/ppl", "eval/bits_per_byte"}
SPEC = {"kind": "train", "model": {"config": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 176, "vocab_size": 258}},
        "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
        "eval": {"data": [{"path": "text.txt", "format": "text"}], "every_steps": 25, "max_tokens": 2048},
        "train": {"steps": 300}, "parallel": {"sp": 2}, "resources": {"ranks": 2, "threads": 1},
        "checkpoint": {"every_steps": 40}}


def seqctl(*words, stdin=None):
    return subprocess.run([BUILD / "seqctl", *map(str, words)], input=stdin, check=True, text=True,
                          stdout=subprocess.PIPE, env=dict(os.environ, **ACCESS)).stdout


def wait_for(job, kind, n=1):
    with subprocess.Popen([BUILD / "seqctl", "events", str(job), "-f", "-o", "jsonl"], stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, **ACCESS)) as p:
        for line in p.stdout:
            n -= json.loads(line).get("type") == kind
            if n == 0:
                break
        p.kill()


def ranks(job):  # of this seqd: their gang's directory names the job
    found = []
    for d in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            exe = os.readlink(d / "exe")
            parent = int((d / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = pathlib.Path(f"/proc/{parent}/cmdline").read_text()
        except (OSError, ValueError):
            continue
        if exe == str(BUILD / "seqrank") and f"{STATE}/" in words and f"/{job}-e" in words:
            found.append(int(d.name))
    return found


def reported(job):
    loss = {}
    for line in seqctl("metrics", job, "-o", "jsonl").splitlines():
        row = json.loads(line)
        loss[row["step"]] = numpy.float32(row["loss"])
    return sorted(loss.items())


def accumulated(run):
    a = event_accumulator.EventAccumulator(str(run), size_guidance={event_accumulator.SCALARS: 0})
    a.Reload()
    return {tag: [(e.step, numpy.float32(e.value)) for e in a.Scalars(tag)] for tag in a.Tags()["scalars"]}


def provided(run):
    m = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 0})
    m.AddRunsFromDirectory(str(run)).Reload()
    p = data_provider.MultiplexerDataProvider(m, str(run))
    got = p.read_scalars(RequestContext(), experiment_id="", plugin_name="scalars", downsample=100000,
                         run_tag_filter=RunTagFilter())
    assert list(got) == ["."], list(got)
    return {tag: [(d.step, numpy.float32(d.value)) for d in rows] for tag, rows in got["."].items()}


def check(name, job, more_tags=frozenset(), n_files=1):
    run = STATE.parent / name
    seqctl("pull", job, run, "--artifacts", "-q")
    files = sorted(run.iterdir())
    assert len(files) == n_files, files
    want, steps = reported(job), SPEC["train"]["steps"]
    assert [k for k, _ in want] == list(range(1, steps + 1))
    for read in accumulated, provided:
        got = read(run)
        assert set(got) == STEP_TAGS | EVAL_TAGS | more_tags, sorted(got)
        assert got["train/loss"] == want, read.__name__
        for tag in STEP_TAGS | more_tags:
            assert [k for k, _ in got[tag]] == list(range(1, steps + 1)), (read.__name__, tag)
        for tag in EVAL_TAGS:
            assert [k for k, _ in got[tag]] == list(range(25, steps + 1, 25)), (read.__name__, tag, got[tag])
    os.chmod(files[-1], 0o600)
    os.truncate(files[-1], files[-1].stat().st_size - 5)  # the last record is the last evaluation
    for read in accumulated, provided:
        got = read(run)
        assert got["train/loss"] == want and got["eval/loss"][-1][0] == steps - 25, read.__name__
    print(f"ok   {name}: {n_files} files, {len(got)} tags, {steps} steps")


def submit(**changes):
    return seqctl("submit", "-", "-o", "name", "-q", stdin=json.dumps(dict(SPEC, **changes))).strip()


def main():
    job = submit()
    seqctl("watch", job, "-q")
    check("whole", job)
    job = submit()
    wait_for(job, "checkpoint", 2)
    for pid in ranks(job):
        os.kill(pid, signal.SIGKILL)
    seqctl("watch", job, "-q")
    check("killed", job, n_files=2)
    job = submit()
    wait_for(job, "checkpoint", 1)
    seqctl("suspend", job)
    wait_for(job, "stopped")
    seqctl("resume", job)
    seqctl("watch", job, "-q")
    check("suspended", job, n_files=2)
    job = submit(precision={"params": "fp16"})
    seqctl("watch", job, "-q")
    check("half", job, frozenset({"train/loss_scale"}))


with tempfile.TemporaryDirectory(prefix="check-tensorboard-") as top:
    STATE = pathlib.Path(top) / "state"
    data = pathlib.Path(top) / "data"
    data.mkdir()
    (data / "text.txt").write_text("".join(p.read_text() for p in sorted(ROOT.glob("worker/rank/*.c")))[:60000])
    log = open(pathlib.Path(top) / "log", "w")
    seqd = subprocess.Popen([BUILD / "seqd", "--dev", "--state", STATE, "--listen", "127.0.0.1:0"], cwd=data, stdout=log,
                            stderr=log)
    try:
        while not (STATE / "token").exists() or not (STATE / "address").exists():
            if seqd.poll() is not None:
                sys.exit(pathlib.Path(top, "log").read_text())
            time.sleep(0.05)
        address = (STATE / "address").read_text().split()[0].removeprefix("http://")
        ACCESS = {"SEQD_URL": f"http://{address}", "SEQD_TOKEN_FILE": str(STATE / "token")}
        os.chdir(data)
        while not seqctl("nodes", "-o", "name"):
            time.sleep(0.05)
        main()
    finally:
        seqd.send_signal(signal.SIGINT)
        seqd.wait()
