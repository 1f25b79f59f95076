"""LitGPT: ``litgpt finetune_full`` on the device and on two, and ``LLM``, against the CPU."""

import json

import pytest
import tiny
import torch

COMMAND = "from litgpt.__main__ import main\nmain()\n"
OPTIONS = {
    "data": "JSON", "data.json_path": "rows.json", "data.val_split_fraction": 0.25, "data.num_workers": 0,
    "train.max_steps": 3, "train.global_batch_size": 4, "train.micro_batch_size": 2, "train.max_seq_length": 32,
    "eval.initial_validation": "false",
}  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    """A folder with a model of two layers, and rows to train it on."""
    from litgpt import GPT, Config
    from litgpt.utils import save_config

    torch.manual_seed(1)
    config = Config(
        name="tiny", block_size=64, vocab_size=32, padded_vocab_size=32, n_layer=2, n_head=4, n_embd=32,
        rotary_percentage=1.0, parallel_residual=False, bias=False, norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP", intermediate_size=64,
    )  # fmt: skip
    folder = tmp_path / "model"
    folder.mkdir()
    torch.save(GPT(config).state_dict(), folder / "lit_model.pth")
    save_config(config, folder)
    tiny.tokenizer().save_pretrained(folder)
    rows = zip(tiny.sentences(24), tiny.sentences(24)[::-1], strict=True)
    rows = [{"instruction": asked, "input": "", "output": said} for asked, said in rows]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture
def trained(run, saved):
    def train(name, integrations="auto", **options):
        words = [f"--{key}={value}" for key, value in {**OPTIONS, "out_dir": name, **options}.items()]
        printed = run(COMMAND, "finetune_full", saved, *words, MYDEVICE_INTEGRATIONS=integrations)
        weights = torch.load(saved.parent / name / "final/lit_model.pth", map_location="cpu")
        return printed, weights["model"]

    return train


def test_I15_finetuning(trained, saved):
    printed, weights = trained("here", precision="32-true", devices=1)
    assert "Memory Used" in printed
    printed, expected = trained("cpu", "none", precision="32-true", devices=1)
    assert "Memory Used" not in printed
    before = torch.load(saved / "lit_model.pth")
    assert not torch.equal(before["lm_head.weight"], expected["lm_head.weight"])
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.requires("multi_device")
def test_I15_finetuning_on_every_device(trained):
    """Without options: shards on two devices, in bfloat16."""
    printed, weights = trained("here")
    assert "Memory Used" in printed
    _, expected = trained("cpu", "none", precision="32-true")
    torch.testing.assert_close(weights, expected, atol=0.01, rtol=0.05, check_dtype=False)


def test_I15_generation(device, saved):
    from litgpt import LLM

    llm = LLM.load(str(saved))
    assert llm.model.lm_head.weight.device == device
    tokens = torch.arange(4, 20)[None]
    found = llm.model(tokens.to(device)).float().cpu()
    assert llm.generate("a cat sat on", max_new_tokens=8, temperature=0.0)
    llm = LLM.load(str(saved), distribute=None)
    llm.distribute(accelerator="cpu", precision="32-true")
    torch.testing.assert_close(found, llm.model(tokens), atol=0.05, rtol=0.05)
    expected = llm.generate("a cat sat on", max_new_tokens=8, temperature=0.0)
    llm = LLM.load(str(saved), distribute=None)
    llm.distribute(devices=1, precision="32-true")
    assert llm.model.lm_head.weight.device == device
    assert llm.generate("a cat sat on", max_new_tokens=8, temperature=0.0) == expected
