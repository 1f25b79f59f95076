"""What `make demo` runs: a small CNN on digits, a small GPT on this repository's text, in eager and by torch.compile.

Exits non-zero unless the accuracy is above 95 %, losses and gradients are the CPU's, a checkpoint gives equal outputs
everywhere, and the GPT learns compiled what it learns in eager.
"""

import argparse
import tempfile
import time
from pathlib import Path

import cnn
import compiled
import gpt
import torch
from lockstep import side_by_side
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

console = Console()


def classify_digits(device: torch.device, steps: int) -> None:
    """Digits: the accuracy is the proof."""
    train_x, train_y, test_x, test_y = cnn.digits()
    model = cnn.network()
    training = side_by_side("CNN on digits", model, cnn.batches(train_x, train_y, steps), device, console)
    console.print(training.table("The CNN, step by step"))
    training.check()
    accuracy = cnn.accuracy(model, test_x.to(device), test_y.to(device))
    console.print(f"accuracy on {len(test_x)} unseen digits: [bold]{accuracy:.1%}[/bold]\n")
    if accuracy <= 0.95:
        raise SystemExit(f"an accuracy of {accuracy:.1%} is not above 95 %")


def learn_text(device: torch.device, steps: int) -> None:
    """Text: the losses and the checkpoint are the proof."""
    text = gpt.repository_text()
    model = gpt.GPT(len(text.characters))
    training = side_by_side("GPT on this repository", model, text.batches(steps, 16, model.context), device, console)
    console.print(training.table("The GPT, step by step"))
    training.check()
    twin, batches = gpt.GPT(len(text.characters)), text.batches(steps, 16, model.context)
    compiled.learn_compiled(twin, batches, device, training, why_no_kernels(device), console)
    console.print(Panel(text.decode(model.eval().write(160)), title=f"written on {device}", width=100))
    carry_over(model, text, device)


def why_no_kernels(device: torch.device) -> str:
    """What torch.compile lacks on the device; "" if nothing."""
    if device.type == "cpu":
        return "the CPU is compared with itself"
    from torch_backplane import compiler

    why = compiler.why_none()
    return f"{device}: {why}" if why else ""


def carry_over(model: gpt.GPT, text: gpt.Text, device: torch.device) -> None:
    """Save on the device; load on the CPU and on the second device; the outputs must be equal."""
    (tokens, _) = next(text.batches(1, 4, model.context))
    with torch.no_grad():
        expected = model(tokens.to(device)).cpu()
    targets = [torch.device("cpu")]
    if device.type != "cpu" and torch.accelerator.device_count() > 1:
        targets.append(torch.device(device.type, 1))
    table = Table(title="One checkpoint, every device", title_justify="left")
    for column in ("saved on", "loaded on", "largest difference of the outputs"):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt.pt"
        torch.save(model.state_dict(), path)
        for target in targets:
            weights = torch.load(path, map_location=target, weights_only=True)
            if wrong := {weight.device for weight in weights.values()} - {target}:
                raise SystemExit(f"weights came back on {wrong}, not on {target}")
            twin = gpt.GPT(len(text.characters)).to(target).eval()
            twin.load_state_dict(weights)
            with torch.no_grad():
                difference = (twin(tokens.to(target)).cpu() - expected).abs().max().item()
            table.add_row(str(model.head.weight.device), str(target), f"{difference:.1e}")
            if not difference < 1e-4:
                raise SystemExit(f"the checkpoint gives other outputs on {target}: they differ by {difference}")
    console.print(table)


def main() -> None:
    """Parse the options and run both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="mydevice", help="device to train on; 'cpu' compares the CPU with itself")
    parser.add_argument("--quick", action="store_true", help="fewer steps of the GPT, for tests")
    arguments = parser.parse_args()
    start = time.perf_counter()
    device = torch.device(arguments.device)
    classify_digits(device, steps=150)
    learn_text(device, steps=20 if arguments.quick else 300)
    if device.type != "cpu":
        switch = f"{device.type.upper()}_INTEGRATIONS=auto"
        console.print(f"{switch} lets Transformers, Lightning and others choose {device.type} by themselves")
    console.print(f"done in {time.perf_counter() - start:.0f} s on [bold]{device}[/bold]")


if __name__ == "__main__":
    main()
