"""Fine-tunes a small Llama of Transformers by LoRA, compiled, and gives what it has learned to another process.

    python -m pip install -r examples/lora/requirements.txt
    python examples/lora/train.py
    python examples/lora/train.py --eager --device cpu

The model is made from a configuration: nothing is downloaded. Its adapters alone learn a text's characters: the base
stays as it was, and the adapters are all that is saved.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
from gpt import repository_text


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--device", help="type of device; default: the accelerator")
    return parser.parse_args()


def base_model(characters: int) -> LlamaForCausalLM:
    """A Llama of two layers, the same on every call."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=characters,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            pad_token_id=None,
            bos_token_id=0,
            eos_token_id=None,
        )
    )


def main() -> None:
    """Train the adapters, save them, load them into a new base, and compare."""
    chosen = options()
    device = torch.device(chosen.device or str(torch.accelerator.current_accelerator()))
    text = repository_text()
    lora = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=32, target_modules="all-linear", lora_dropout=0.0)
    torch.manual_seed(1)
    model = get_peft_model(base_model(len(text.characters)), lora).to(device)
    frozen = {name: value.detach().clone() for name, value in model.named_parameters() if not value.requires_grad}
    learning = [value for value in model.parameters() if value.requires_grad]
    print(
        f"{sum(map(torch.numel, learning))} of {sum(map(torch.numel, model.parameters()))} parameters learn on {device}"
    )

    call = model if chosen.eager else torch.compile(model)
    optimizer = torch.optim.AdamW(learning, lr=1e-2)
    for step, (x, y) in enumerate(text.batches(chosen.steps, 16, 64), 1):
        logits = call(input_ids=x.to(device)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.to(device).flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1 or step % 10 == 0 or step == chosen.steps:
            print(f"step {step} of {chosen.steps}: loss {loss.item():.4f}", flush=True)
    parameters = dict(model.named_parameters())
    if changed := [name for name, value in frozen.items() if not torch.equal(value, parameters[name])]:
        raise SystemExit(f"the base has changed: {changed}")

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        again = PeftModel.from_pretrained(base_model(len(text.characters)), folder).to(device)
        difference = (again(input_ids=x.to(device)).logits - model(input_ids=x.to(device)).logits).abs().max().item()
        size = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    print(f"saved adapters of {size} bytes; loaded into a new base they differ by {difference:.1e}")
    if not difference < 1e-5:
        raise SystemExit("the loaded adapters give other outputs")


if __name__ == "__main__":
    main()
