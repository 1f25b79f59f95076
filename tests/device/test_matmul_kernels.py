"""The host kernels of matrix products equal the CPU's, for every layout, and are what ran."""

import pytest
import torch

pytestmark = pytest.mark.requires("host_exec")

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.float64: {},
    torch.bfloat16: {"rtol": 2e-2, "atol": 1e-1},
    torch.float16: {"rtol": 2e-3, "atol": 2e-2},
}
# Around the edges of a register tile (6 x 16 or 6 x 8), of a packed block (96, 256, 512), and of nothing.
SIZES = [
    (1, 1, 1),
    (6, 16, 4),
    (7, 17, 5),
    (5, 1, 9),
    (1, 33, 9),
    (97, 40, 260),
    (13, 515, 3),
    (3, 4, 0),
    (0, 4, 3),
    (4, 0, 3),
]


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape))).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_mm(equals_cpu, m, n, k, dtype):
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
    equals_cpu("mm", torch.mm, a, b, **TOLERANCE[dtype])


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.t().contiguous().t(),
    "part": lambda x: torch.nn.functional.pad(x, (1, 2))[:, 1:-2],
    "every second": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "expanded": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_mm_takes_every_layout(equals_cpu, first, second):
    a, b = random(9, 20), random(20, 19)
    equals_cpu("mm", lambda a, b: LAYOUTS[first](a) @ LAYOUTS[second](b), a, b, **TOLERANCE[torch.float32])


@pytest.mark.parametrize("layout", ["rows", "columns", "part", "every second"])
def test_out_keeps_its_strides(device, layout):
    a, b = random(9, 20), random(20, 19)
    outs = [LAYOUTS[layout](torch.full((9, 19), 7.0, device=where)) for where in ("cpu", device)]
    torch.mm(a, b, out=outs[0])
    torch.mm(a.to(device), b.to(device), out=outs[1])
    assert outs[0].stride() == outs[1].stride()
    torch.testing.assert_close(outs[1].cpu(), outs[0])


def test_out_is_resized(device):
    out = torch.empty(0, device=device)
    torch.mm(torch.ones(2, 3, device=device), torch.ones(3, 4, device=device), out=out)
    assert out.tolist() == [[3.0] * 4] * 2


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(9, 19), (19,), (9, 1), (1,), ()], ids=str)
def test_addmm_broadcasts(equals_cpu, shape, dtype):
    self, a, b = random(*shape, dtype=dtype), random(9, 20, dtype=dtype), random(20, 19, dtype=dtype)
    equals_cpu("addmm", lambda s, a, b: torch.addmm(s, a, b, beta=0.5, alpha=-2), self, a, b, **TOLERANCE[dtype])


def test_addmm_without_beta_ignores_nan(equals_cpu):
    nan = torch.full((9, 19), float("nan"))
    equals_cpu(
        "addmm", lambda s, a, b: torch.addmm(s, a, b, beta=0), nan, random(9, 20), random(20, 19), rtol=1e-5, atol=1e-5
    )


def test_addmm_in_place(equals_cpu):
    def call(s, a, b):
        return s.clone().addmm_(a, b, beta=3, alpha=0.5)

    equals_cpu("addmm", call, random(9, 19), random(9, 20), random(20, 19), rtol=1e-5, atol=1e-5)
    equals_cpu("addmm", call, random(9, 19), random(9, 0), random(0, 19))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bmm_and_baddbmm(equals_cpu, dtype):
    a, b, s = random(3, 9, 20, dtype=dtype), random(3, 20, 19, dtype=dtype), random(9, 19, dtype=dtype)
    equals_cpu("bmm", torch.bmm, a, b, **TOLERANCE[dtype])
    equals_cpu("bmm", lambda a, b: torch.bmm(a.transpose(0, 1), b.permute(1, 0, 2)[:9]), random(3, 9, 3, dtype=dtype),
               random(3, 9, 20, dtype=dtype), **TOLERANCE[dtype])  # fmt: skip
    equals_cpu("bmm", lambda a, b: torch.bmm(a[:1].expand_as(a), b), a, b, **TOLERANCE[dtype])
    equals_cpu("baddbmm", lambda s, a, b: torch.baddbmm(s, a, b, beta=2, alpha=0.5), s, a, b, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_matrix_times_a_vector(equals_cpu, dtype):
    matrix, vector = random(70, 33, dtype=dtype), random(33, dtype=dtype)
    equals_cpu("addmv", lambda m, v: m @ v, matrix, vector, **TOLERANCE[dtype])
    equals_cpu(
        "addmv", lambda m, v: m.t().contiguous().t() @ v.repeat_interleave(3)[::3], matrix, vector, **TOLERANCE[dtype]
    )
    equals_cpu("addmv", lambda m, v: torch.addmv(m[:, 0], m, v, beta=2, alpha=3), matrix, vector, **TOLERANCE[dtype])


def test_linear_and_its_gradients(equals_cpu):
    x, w, b = random(4, 5, 20), random(19, 20), random(19)
    equals_cpu("addmm", torch.nn.functional.linear, x, w, b, grad=True, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.uint8], ids=str)
def test_other_dtypes_go_to_the_fallback(equals_cpu, dtype):
    equals_cpu("mm", torch.mm, random(3, 4).mul(3).to(dtype), random(4, 5).mul(3).to(dtype), calls=0)


@pytest.mark.parametrize(
    "bad",
    [
        lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
        lambda d: torch.mm(torch.ones(2, device=d), torch.ones(2, 3, device=d)),
        lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(3, 2, device=d, dtype=torch.float64)),
        lambda d: torch.addmm(torch.ones(5, device=d), torch.ones(2, 3, device=d), torch.ones(3, 4, device=d)),
        lambda d: torch.bmm(torch.ones(2, 3, 4, device=d), torch.ones(3, 4, 5, device=d)),
        lambda d: torch.mm(
            torch.ones(2, 3, device=d), torch.ones(3, 2, device=d), out=torch.ones(2, 2, device=d).int()
        ),
    ],
)
def test_errors_are_the_cpus(device, bad):
    with pytest.raises(RuntimeError) as expected:
        bad("cpu")
    with pytest.raises(RuntimeError) as found:
        bad(device)
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_the_product_may_outlive_its_operands(device, device_module):
    total = torch.zeros(64, 64, device=device)
    for i in range(50):
        total += torch.full((64, 64), float(i), device=device) @ torch.eye(64, device=device).t()
    device_module.synchronize()
    assert total[0, 0].item() == total[-1, -1].item() == sum(range(50))
