"""Under torch.compile, as one graph: operators and dtypes of CUDA that the CPU does not support give eager's values."""

import pytest
import torch

F = torch.nn.functional


def half(*shape, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def scaled(x):
    ones, offs = torch.ones(16, device=x.device), torch.tensor([16], dtype=torch.int32, device=x.device)
    return torch._scaled_grouped_mm(x, x.unsqueeze(0).mT, ones, ones.unsqueeze(0), offs) + 1


CASES = {
    "mm": (lambda x: torch.mm(x, x, out_dtype=torch.float32) + 1, half(16, 16)),
    "bmm": (lambda x: torch.bmm(x[None], x[None], out_dtype=torch.float32) + 1, half(16, 16)),
    "addmm": (lambda x: torch.addmm(x, x, x, out_dtype=torch.float32) + 1, half(16, 16)),
    "grouped": (
        lambda x: F.grouped_mm(x, torch.stack([x, x]), offs=torch.tensor([4, 16], dtype=torch.int32, device=x.device)),
        half(16, 16, dtype=torch.bfloat16),
    ),
    "scaled": (scaled, half(16, 16, dtype=torch.float8_e4m3fn)),
    "transform": (lambda x: torch.view_as_real(torch.fft.rfft(x)).sum(-1), half(4, 8)),
    "pool": (lambda x: F.avg_pool3d(x, 2) * 2, half(1, 2, 4, 4, 4)),
    "histogram": (lambda x: torch.histc((4 * x).int(), 8, -8, 8) + 1, half(100)),
}


TORCHS = pytest.mark.skipif(torch.__version__ < (2, 12), reason="torch's own shape function of addmm.dtype fails")


@pytest.mark.parametrize("case", [pytest.param(name, marks=[TORCHS] if name == "addmm" else []) for name in CASES])
def test_K13_compiled_they_are_eagers(device, case):
    function, x = CASES[case]
    x = x.to(device)
    torch._dynamo.reset()
    found = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(found, function(x), rtol=2e-3, atol=2e-3)
