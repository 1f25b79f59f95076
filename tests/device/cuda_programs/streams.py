"""Streams and events as people write them for a GPU."""

import torch

x = torch.arange(1000.0)
if torch.cuda.is_available():
    copy, done, start = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(copy):
        assert torch.cuda.current_stream() == copy
        start.record()
        y = x.pin_memory().cuda(non_blocking=True)
        y.mul_(2)
        end.record()
        done.record(copy)
    torch.cuda.current_stream().wait_event(done)
    z = y + 1
    y.record_stream(torch.cuda.current_stream())
    copy.synchronize()
    torch.cuda.synchronize()
    assert done.query()
    assert start.elapsed_time(end) >= 0
    assert torch.cuda.memory_allocated() > 0
else:
    z = x * 2 + 1
result = [z.sum().item(), z[-1].item()]
