"""torchtitan: a Llama on one device and on two, by FSDP, tensors and pipeline, compiled, resumed, against the CPU."""

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
import torch
from torch import nn
from torch.distributed import checkpoint

STEPS, RATE = 4, 0.01
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
TRAIN = "import runpy\nrunpy.run_module('torchtitan.train', run_name='__main__', alter_sys=True)\n"


@pytest.fixture
def titan(run, tmp_path, monkeypatch):
    """``titan(name, ranks, *options)``: the losses that are logged, by step, of a job that starts from one seed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("LOG_RANK", "0")
    tiny.tokenizer().save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "data").mkdir()
    rows = "\n".join(json.dumps({"text": text}) for text in tiny.sentences(200))
    (tmp_path / "data" / "rows.json").write_text(rows)
    given = {
        "experimental.custom_import": "torchtitan_tiny",
        "model.name": "llama3",
        "model.flavor": "tiny",
        "model.hf_assets_path": "tokenizer",
        "training.dataset": "c4_test",
        "training.dataset_path": "data",
        "training.seq_len": 32,
        "training.local_batch_size": 2,
        "training.mixed_precision_param": "float32",
        "training.steps": STEPS,
        "lr_scheduler.total_steps": STEPS,
        "lr_scheduler.warmup_steps": 0,
        "lr_scheduler.decay_ratio": 0.0,
        "optimizer.lr": RATE,
        "metrics.log_freq": 1,
        "checkpoint.interval": 2,
        "checkpoint.initial_load_path": "seed",
    }

    def start(name, ranks, *flags, **options):
        words = ["--checkpoint.enable", "--checkpoint.no-last-save-model-only", "--job.dump_folder", name, *flags]
        for key, value in {**given, **{key.replace("__", "."): value for key, value in options.items()}}.items():
            words += [f"--{key}", str(value)]
        printed = run(TRAIN, *words, launcher=[*TORCHRUN, str(ranks)]) + run.errors
        plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
        return {int(step): float(loss) for step, loss in re.findall(r"step: +(\d+) +loss: +([\d.]+)", plain)}

    start.folder, start.options = tmp_path, given
    checkpoint.save(model().state_dict(), checkpoint_id=tmp_path / "seed")
    return start


@torch.no_grad()
def model():
    import torchtitan_tiny  # noqa: F401
    from torchtitan.models.llama3 import Transformer, llama3_args

    torch.manual_seed(7)
    made = Transformer(llama3_args["tiny"])
    made.init_weights()
    return made


def expected(titan, ranks=1):
    """The losses of torchtitan's model by torch's AdamW on the CPU, which takes the ranks' batches together."""
    from torchtitan.components.tokenizer import HuggingFaceTokenizer
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataset

    llama = model()
    optimizer = torch.optim.AdamW(llama.parameters(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    words = HuggingFaceTokenizer(str(titan.folder / "tokenizer"))
    of = SimpleNamespace(dataset_name="c4_test", dataset_path=str(titan.folder / "data"), tokenizer=words, seq_len=32)
    rows = [
        iter(HuggingFaceTextDataset(**vars(of), dp_rank=rank, dp_world_size=ranks, infinite=True))
        for rank in range(ranks)
    ]
    losses = {}
    for step in range(1, STEPS + 1):
        batch = [next(one) for one in rows for _ in range(titan.options["training.local_batch_size"])]
        tokens = torch.stack([inputs["input"] for inputs, _ in batch])
        labels = torch.stack([label for _, label in batch])
        loss = nn.functional.cross_entropy(llama(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(llama.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = loss.item()
    assert losses[STEPS] < losses[1] - 0.1
    return losses


def test_one_device(titan):
    assert titan("one", 1) == pytest.approx(expected(titan), rel=1e-4)


@pytest.mark.long
def test_compiled(titan):
    assert titan("one", 1, "--compile.enable") == pytest.approx(expected(titan), rel=1e-4)


@pytest.mark.requires("multi_device")
def test_fsdp(titan):
    assert titan("two", 2) == pytest.approx(expected(titan, 2), rel=1e-4)


@pytest.mark.requires("multi_device")
def test_tensors_then_a_pipeline_of_the_checkpoint(titan):
    """The second job has the other mesh, and goes on with the first one's step, moments and place in the data."""
    wanted = expected(titan)
    found = titan("split", 2, parallelism__tensor_parallel_degree=2, training__steps=2)
    assert found == pytest.approx({step: wanted[step] for step in (1, 2)}, rel=1e-4)
    found = titan(
        "split", 2, parallelism__pipeline_parallel_degree=2, parallelism__pipeline_parallel_schedule="1F1B",
        parallelism__pipeline_parallel_microbatch_size=1,
    )  # fmt: skip
    assert found == pytest.approx({step: wanted[step] for step in (3, 4)}, rel=1e-4)
