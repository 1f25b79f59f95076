"""The host kernels of random numbers: their distributions, and that the generator alone decides what they give."""

import pytest
import torch

pytestmark = pytest.mark.requires("host_exec")

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
COUNT = 100_001
FILLS = {
    "uniform_": lambda x, g: x.uniform_(-2, 6, generator=g),
    "normal_": lambda x, g: x.normal_(2, 8**0.5 / 1.5, generator=g),
    "bernoulli_.float": lambda x, g: x.bernoulli_(0.3, generator=g),
}


@pytest.fixture
def generator(device):
    return torch.Generator(device).manual_seed(11)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", FILLS)
def test_moments(device, generator, kernel_calls, op, dtype):
    before = kernel_calls(op)
    values = FILLS[op](torch.empty(COUNT, dtype=dtype, device=device), generator).cpu().double()
    assert kernel_calls(op) - before == 1
    mean, variance = {"uniform_": (2, 64 / 12), "normal_": (2, 8 / 2.25), "bernoulli_.float": (0.3, 0.21)}[op]
    assert abs(values.mean().item() - mean) < 5 * (variance / COUNT) ** 0.5 + 0.004 * mean
    assert abs(values.var().item() / variance - 1) < 0.03
    if op == "uniform_":
        assert values.min() >= -2
        assert values.max() < 6


def test_normal_numbers_have_normal_tails(device, generator):
    values = torch.empty(1_000_000, device=device).normal_(generator=generator).cpu()
    assert torch.isfinite(values).all()
    for limit, fraction in ((1, 0.3173), (2, 0.0455), (3, 0.0027)):
        assert (values.abs() > limit).double().mean().item() == pytest.approx(fraction, rel=0.06)
    assert values[::2].mul(values[1::2]).mean().abs() < 0.005  # the two of a pair are independent


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", FILLS)
def test_an_element_depends_on_its_place_alone(device, generator, op, dtype):
    def fill(x):
        return FILLS[op](x, generator.manual_seed(3)).cpu()

    many = fill(torch.empty(5000, dtype=dtype, device=device))
    for count in (1, 2, 31, 512, 513, 1025):
        even = count + count % 2
        assert torch.equal(fill(torch.empty(even, dtype=dtype, device=device))[:count], many[:count])
    matrix = torch.zeros(25, 40, dtype=dtype, device=device).t()
    assert torch.equal(fill(matrix), many[:1000].view(40, 25))
    gaps = torch.full((40, 50), 3, dtype=dtype, device=device)
    assert torch.equal(fill(gaps[:, ::2]), many[:1000].view(40, 25))
    assert gaps[:, 1::2].eq(3).all()


@pytest.mark.parametrize(
    ("op", "dtype", "numbers"),
    [
        ("uniform_", torch.float32, 1),
        ("uniform_", torch.float64, 2),
        ("normal_", torch.bfloat16, 1),
        ("normal_", torch.float64, 2),
        ("bernoulli_.float", torch.float64, 1),
    ],
    ids=str,
)
def test_the_generator_moves_by_what_was_used(device, generator, op, dtype, numbers):
    for count in (1, 4, 5, 1000, 0):
        before = generator.get_offset()
        FILLS[op](torch.empty(2 * count, dtype=dtype, device=device)[::2], generator)
        assert generator.get_offset() - before == -(-count * numbers // 4) * 4


def philox(seed, block):
    """Four numbers of the sequence that backplane/philox.h defines."""
    c, key = [block & 0xFFFFFFFF, block >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ key[0], second & 0xFFFFFFFF, first >> 32 ^ c[3] ^ key[1], first & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize(("seed", "block"), [(11, 0), (2**63 + 5, 7), (3, 2**32 - 1)])
def test_the_numbers_are_those_of_philox(device, seed, block):
    generator = torch.Generator(device).manual_seed(seed)
    generator.set_offset(block * 4)
    found = torch.empty(11, device=device).uniform_(generator=generator)
    numbers = [number for i in range(3) for number in philox(seed, block + i)]
    assert found.tolist() == [(number >> 8) / 2**24 for number in numbers[:11]]


def test_two_launches_go_on_where_the_other_ended(device, generator):
    both = torch.empty(200, device=device).uniform_(generator=generator).cpu()
    generator.manual_seed(11)
    first, second = (torch.empty(100, device=device).uniform_(generator=generator).cpu() for _ in range(2))
    assert torch.equal(both, torch.cat([first, second]))


SAME_EVERYWHERE = """
import torch, hashlib
g = torch.Generator("{device}").manual_seed(5)
x = [torch.empty(3001, device="{device}") for _ in range(3)]
x[0].uniform_(generator=g)
x[1].normal_(generator=g)
x[2].bernoulli_(generator=g)
x += [torch.randperm(3001, device="{device}", generator=g)]
torch.manual_seed(6)
x += [*torch.native_dropout(torch.ones(3001, device="{device}"), 0.3, True)]
print(hashlib.sha256(b"".join(t.cpu().numpy().tobytes() for t in x)).hexdigest())
"""


@pytest.mark.long
@pytest.mark.once
def test_memory_and_stream_kinds_give_the_same_numbers(run_in_process, name):
    kinds = [f"kind={memory},stream={stream}" for memory in ("unified", "discrete") for stream in ("inline", "async")]
    done = [run_in_process(SAME_EVERYWHERE.format(device=name), options=kind) for kind in kinds]
    assert len({process.stdout for process in done}) == 1, [process.stderr for process in done]
    assert len(done[0].stdout.strip()) == 64


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_bernoulli_at_its_ends(device, p):
    assert torch.empty(3000, device=device).bernoulli_(p).eq(p).all()
    assert torch.empty(3000, device=device, dtype=torch.bool).bernoulli_(p).eq(bool(p)).all()


def test_uniform_of_an_empty_range(device):
    assert torch.empty(9, device=device).uniform_(2, 2).tolist() == [2.0] * 9


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dropout_and_its_gradient(device, kernel_calls, dtype):
    calls = [kernel_calls("native_dropout"), kernel_calls("native_dropout_backward")]
    x = torch.full((200, 300), 3.0, dtype=dtype, device=device, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert [kernel_calls("native_dropout"), kernel_calls("native_dropout_backward")] == [calls[0] + 1, calls[1] + 1]
    kept = y.detach().cpu() != 0
    assert abs(kept.double().mean().item() - 0.75) < 0.01
    assert torch.equal(y.detach().cpu()[kept].unique(), torch.tensor([4.0], dtype=dtype))
    scale = torch.tensor(4 / 3).to(dtype)
    torch.testing.assert_close(x.grad.cpu(), kept * scale)


def test_dropout_keeps_layouts_and_ends(device):
    x = torch.ones(30, 20, device=device).t()
    y, mask = torch.native_dropout(x, 0.5, True)
    assert y.stride() == (1, 20)
    assert torch.equal(y.cpu(), mask.cpu() * 2.0)
    assert torch.nn.functional.dropout(x, 1.0).eq(0).all()
    assert torch.equal(torch.nn.functional.dropout(x, 0.0).cpu(), x.cpu())
    assert torch.equal(torch.native_dropout(x, 0.5, False)[0].cpu(), x.cpu())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_randperm(device, generator, kernel_calls, dtype):
    before = kernel_calls("randperm.generator_out")
    for count in (0, 1, 2, 1000):
        values = torch.randperm(count, dtype=dtype, device=device, generator=generator)
        assert values.dtype == dtype
        assert sorted(values.tolist()) == list(range(count))
    assert kernel_calls("randperm.generator_out") - before == 4
    first = torch.randperm(1000, device=device, generator=generator.manual_seed(1)).cpu()
    assert torch.equal(first, torch.randperm(1000, device=device, generator=generator.manual_seed(1)).cpu())
    assert not torch.equal(first, torch.randperm(1000, device=device, generator=generator).cpu())


def test_every_order_is_as_likely(device, generator):
    orders = torch.stack([torch.randperm(3, device=device, generator=generator).cpu() for _ in range(3000)])
    _, counts = orders.unique(dim=0, return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 400
    assert counts.max() < 600


def test_other_dtypes_go_to_the_fallback(device, kernel_calls):
    before = kernel_calls("randperm.generator_out")
    assert sorted(torch.randperm(10, dtype=torch.float32, device=device).tolist()) == list(range(10))
    assert kernel_calls("randperm.generator_out") == before


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: x.uniform_(3, 2),
        lambda x: x.normal_(0, -1),
        lambda x: x.bernoulli_(1.5),
        lambda x: x.long().uniform_(),
        lambda x: torch.native_dropout(x, 1.5, True),
        lambda x: torch.randperm(-1, device=x.device),
    ],
)
def test_wrong_parameters_are_refused(device, bad):
    with pytest.raises(RuntimeError):
        bad(torch.ones(3))
    with pytest.raises(RuntimeError):
        bad(torch.ones(3, device=device))
