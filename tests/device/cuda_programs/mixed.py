"""Mixed precision as people write it for a GPU; where there is none torch disables it, with a warning."""

import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd


class Double(torch.autograd.Function):
    @staticmethod
    @custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, value):
        return value * 2

    @staticmethod
    @custom_bwd
    def backward(ctx, grad):
        return grad * 2


torch.manual_seed(0)
model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(16, 6)
if torch.cuda.is_available():
    model, x = model.cuda(), x.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
result = []
for scaler, context in [
    (GradScaler(init_scale=1024.0), lambda: autocast()),
    (torch.amp.GradScaler("cuda", 1024.0), lambda: torch.autocast("cuda", dtype=torch.bfloat16)),
    (GradScaler(enabled=False), lambda: torch.autocast(device_type="cuda", enabled=False)),
]:
    for _ in range(2):
        optimizer.zero_grad()
        with context():
            out = model(x)
            loss = Double.apply(out).float().pow(2).mean()
        assert (out.dtype == torch.float32) == (not x.is_cuda or not scaler.is_enabled())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        result.append(loss.item())
