"""A command line as people write it for a GPU: without --gpu it is the current one, and NCCL is the default."""

import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default=None, type=int)
parser.add_argument("--dist-backend", default="nccl")


def loss_on(gpu):
    criterion = nn.CrossEntropyLoss(torch.tensor([0.5, 1.0, 2.0]))
    x, target = torch.linspace(-1, 2, 12).reshape(4, 3), torch.tensor([0, 2, 1, 1])
    if torch.cuda.is_available():
        criterion = criterion.cuda(gpu)
        x, target = x.cuda(gpu, non_blocking=True), target.cuda(device=gpu)
        assert x.device == torch.device("cuda", torch.cuda.current_device() if gpu is None else gpu)
    return criterion(x, target).item()


args = parser.parse_args([])
result = [loss_on(args.gpu), loss_on(None), loss_on(0)]
if torch.cuda.is_available():
    assert torch.zeros(1).cuda(None).is_cuda
    assert torch.zeros(1).cuda(int("0")).is_cuda
    result.append(loss_on(torch.cuda.device_count() - 1))
else:
    result.append(loss_on(0))
