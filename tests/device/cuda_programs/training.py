"""A training as people write it for CUDA: mixed precision, a checkpoint, a stream, events, memory figures."""

import argparse
import io
import json

import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu")
parser.add_argument("--half", action="store_true")
args = parser.parse_args()

on_gpu = args.device != "cpu"
device = torch.device(args.device if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
if on_gpu:
    torch.cuda.manual_seed_all(0)
    torch.cuda.set_device(0)
    torch.cuda.reset_peak_memory_stats()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
x, y = torch.randn(32, 8), torch.randn(32, 1)
if on_gpu:
    model.cuda()
    x, y = x.cuda(non_blocking=True), y.cuda(0)  # either way
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = GradScaler(2.0**10, enabled=args.half)  # no step is skipped
losses, dtypes = [], set()
for _ in range(5):
    optimizer.zero_grad()
    with autocast(args.half):
        out = model(x)
        loss = nn.functional.mse_loss(out.float(), y)
    dtypes.add(str(out.dtype))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
facts = {"losses": losses, "dtypes": sorted(dtypes), "device": str(next(model.parameters()).device)}
if on_gpu:
    assert x.is_cuda and y.device.type == "cuda"  # noqa: PT018
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    done = torch.cuda.Event()
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        start.record()
        twice = x.cpu().pin_memory().cuda(non_blocking=True) * 2
        end.record()
        done.record(side)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.current_stream().wait_event(done)
    twice.record_stream(torch.cuda.current_stream())
    side.synchronize()
    torch.cuda.synchronize()
    assert done.query()
    assert start.elapsed_time(end) >= 0
    assert torch.equal(twice.cpu(), x.cpu() * 2)
    facts["peak"] = torch.cuda.max_memory_allocated()
    facts["name"] = torch.cuda.get_device_name(0)
    facts["places"] = [torch.zeros(1, device=f"cuda:{i}").device.index for i in range(torch.cuda.device_count())]
saved = io.BytesIO()
torch.save(model.state_dict(), saved)
saved.seek(0)
loaded = torch.load(saved, map_location="cuda" if on_gpu else "cpu")
facts["loaded"] = sorted({str(weight.device.type) for weight in loaded.values()})
facts["sum"] = sum(weight.double().sum().item() for weight in loaded.values())
print(json.dumps(facts))
