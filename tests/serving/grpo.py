"""A few steps of TRL's GRPO, whose prompts vLLM completes in the same process; prints what the trainer has logged.

``python grpo.py FOLDER``: of a model and its tokenizer. With ``stale``, vLLM keeps the first weights.
"""

import json
import os
import sys

os.environ["MYDEVICE_INTEGRATIONS"] = "auto"

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(1)


def reward(completions, **_):
    return [float(len(set(completion.split()))) for completion in completions]


def main(folder, *words):
    arguments = GRPOConfig(
        output_dir=f"{folder}/out", max_steps=3, learning_rate=1.0, optim="sgd", bf16=False, seed=1,
        per_device_train_batch_size=4, num_generations=4, max_completion_length=8, logging_steps=1,
        use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.2, vllm_max_model_length=64,
        report_to=[], disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    prompts = Dataset.from_dict({"prompt": ["5 17 9", "8 2", "11 4 30", "7 7"] * 3})
    trainer = GRPOTrainer(model=folder, reward_funcs=reward, args=arguments, train_dataset=prompts)
    if "stale" in words:
        trainer.vllm_generation.sync_weights = lambda *_, **__: None
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    changed = [not torch.equal(one, other) for one, other in zip(trainer.model.parameters(), before, strict=True)]
    name = "sampling/sampling_logp_difference/mean"
    found = {
        "devices": sorted({str(parameter.device) for parameter in trainer.model.parameters()}),
        "changed": sum(changed) / len(changed),
        "differences": [float(entry[name]) for entry in trainer.state.log_history if name in entry],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
