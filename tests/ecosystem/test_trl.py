"""TRL on the device: SFTTrainer, bfloat16 by default as on cuda, against the CPU."""

import pytest
import tiny
import torch
from datasets import Dataset
from trl import SFTConfig, SFTTrainer


def trained(folder, **options):
    arguments = SFTConfig(
        output_dir=str(folder), max_steps=3, per_device_train_batch_size=4, learning_rate=0.1, optim="sgd",
        report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=1, max_length=16, **options,
    )  # fmt: skip
    rows = Dataset.from_dict({"text": tiny.sentences(12)})
    trainer = SFTTrainer(tiny.llama(), args=arguments, train_dataset=rows, processing_class=tiny.tokenizer())
    inner = set()
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: inner.add(output.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    trainer.train()
    hook.remove()
    return inner, trainer, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("precision", [{}, pytest.param({"bf16": False}, marks=pytest.mark.sample)])
def test_I06_sft(device, tmp_path, precision):
    inner, trainer, losses = trained(tmp_path, **precision)
    assert inner == {torch.float32 if precision else torch.bfloat16}
    assert trainer.args.bf16 is not bool(precision)
    assert {parameter.device for parameter in trainer.model.parameters()} == {device}
    *_, expected = trained(tmp_path, use_cpu=True, bf16=False)
    assert losses == pytest.approx(expected, rel=1e-3 if precision else 0.05)
    assert torch.isfinite(torch.tensor(losses)).all()
