"""A process group and a profile as people write them for CUDA; one rank."""

import json
import sys

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

rank = 0
dist.init_process_group(backend="nccl", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=1)
torch.cuda.set_device(rank)
device = f"cuda:{rank}"
x = torch.arange(6.0, device=device)


class Double(torch.autograd.Function):
    @staticmethod
    @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, value):
        return value * 2

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, grad):
        return grad * 2


with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        doubled = Double.apply(x.half().requires_grad_())
    dist.all_reduce(x)
    torch.cuda.synchronize()
table = profiled.key_averages().table(sort_by="self_cuda_time_total")
times = sum(event.cuda_time_total for event in profiled.key_averages())
print(
    json.dumps(
        {
            "sum": x.sum().item(),
            "dtype": str(doubled.dtype),
            "doubled": doubled.tolist(),
            "time": times,
            "rows": table.count("\n"),
            "backend": dist.get_backend(),
            "device": str(x.device),
        }
    )
)
dist.destroy_process_group()
