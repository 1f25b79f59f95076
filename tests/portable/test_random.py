"""Random kernels against the algorithm of include/backplane/philox.h in Python, and their distributions."""

import math

import pytest
import torch
import torch.nn.functional as F

from portable.compare import FLOATS, each

SEED = 0x123456789ABCDEF
each_float = pytest.mark.parametrize("dtype", each(FLOATS, torch.float32, torch.bfloat16))
MASK = 0xFFFFFFFF


def numbers(count, offset=0):
    """The generator's numbers from `offset` on."""
    result = []
    for block in range(offset // 4, (offset + count + 3) // 4):
        c = [block & MASK, block >> 32, 0, 0]
        key = [SEED & MASK, SEED >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ key[0], b & MASK, (a >> 32) ^ c[3] ^ key[1], a & MASK]
            key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
        result += c
    return result[:count]


def uniform(count, dtype):
    if dtype != torch.float64:
        return torch.tensor([(n >> 8) / 2**24 for n in numbers(count)]).to(dtype)
    pairs = numbers(2 * count)
    return torch.tensor(
        [((a << 32 | b) >> 11) / 2**53 for a, b in zip(pairs[::2], pairs[1::2], strict=True)], dtype=dtype
    )


@pytest.fixture
def generator(device):
    return torch.Generator(device=device).manual_seed(SEED)


@each_float
def test_uniform_numbers_bit_by_bit(device, ran, generator, dtype):
    for count in (1, 2, 3, 4, 5, 1023, 1025, 5003):
        x = torch.empty(count, dtype=dtype, device=device)
        with ran("uniform_"):
            x.uniform_(generator=generator.manual_seed(SEED))
        expected = uniform(count, dtype)
        expected[expected == 1] = 0  # rounded to the end
        assert torch.equal(x.cpu(), expected)
        used = (count + count % 2) * (2 if dtype == torch.float64 else 1)
        assert generator.get_state().view(torch.int64)[1].item() == (used + 3) // 4 * 4


@each_float
def test_normal_numbers(device, ran, generator, dtype):
    x = torch.empty(1001, dtype=dtype, device=device)
    with ran("normal_"):
        x.normal_(2, 0.5, generator=generator)
    u = uniform(1002, torch.float64 if dtype == torch.float64 else torch.float32).double().reshape(-1, 2)
    radius = 0.5 * torch.sqrt(-2 * torch.log1p(-u[:, 0]))
    turn = 2 * math.pi * u[:, 1]
    expected = torch.stack([radius * turn.cos() + 2, radius * turn.sin() + 2], 1).reshape(-1)[:1001]
    torch.testing.assert_close(x.cpu(), expected.to(dtype))


def test_views_count_row_by_row(device, generator):
    x = torch.empty(5, 7, device=device).t()
    x.uniform_(generator=generator)
    assert torch.equal(x.cpu(), uniform(35, torch.float32).reshape(7, 5))


FILLS = {
    "uniform_": lambda x, g: x.uniform_(1, 2, generator=g),
    "normal_": lambda x, g: x.normal_(generator=g),
    "log_normal_": lambda x, g: x.log_normal_(generator=g),
    "exponential_": lambda x, g: x.exponential_(generator=g),
    "cauchy_": lambda x, g: x.cauchy_(generator=g),
    "geometric_": lambda x, g: x.geometric_(0.3, generator=g),
    "bernoulli_.float": lambda x, g: x.bernoulli_(0.3, generator=g),
    "bernoulli_.Tensor": lambda x, g: x.bernoulli_(torch.full_like(x, 0.3), generator=g),
    "random_": lambda x, g: x.random_(generator=g),
    "random_.to": lambda x, g: x.random_(9, generator=g),
    "random_.from": lambda x, g: x.random_(5, 9, generator=g),
}


@pytest.mark.parametrize("name", FILLS)
def test_views_with_gaps_get_the_numbers_of_dense_tensors(device, ran, generator, name):
    dense = torch.empty(6, 4, device=device)
    FILLS[name](dense, generator)
    offset = generator.get_offset()
    y = torch.zeros(6, 8, device=device)
    with ran(name):
        FILLS[name](y[:, ::2], generator.manual_seed(SEED))
    assert torch.equal(y[:, ::2].cpu(), dense.cpu())
    assert (y[:, 1::2] == 0).all()
    assert generator.get_offset() == offset


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_elements_that_share_a_place_are_refused(device, dtype):
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.empty(3, 1, dtype=dtype, device=device).expand(3, 4).normal_()


def test_dropout_of_a_view_with_gaps(device, ran):
    x = torch.rand(6, 8) + 1
    torch.manual_seed(SEED)
    expected = torch.native_dropout(x[:, ::2].contiguous().to(device), 0.5, True)
    torch.manual_seed(SEED)
    with ran("native_dropout"):
        found = torch.native_dropout(x.to(device)[:, ::2], 0.5, True)
    for a, b, c in zip(found, expected, torch.native_dropout(x[:, ::2], 0.5, True), strict=True):
        assert torch.equal(a.cpu(), b.cpu())
        assert a.stride() == c.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64])
def test_bernoulli_numbers(device, ran, generator, dtype):
    x = torch.empty(1001, dtype=dtype, device=device)
    with ran("bernoulli_.float"):
        x.bernoulli_(0.3, generator=generator)
    assert torch.equal(x.cpu(), torch.tensor([n < int(0.3 * 2**32) for n in numbers(1001)]).to(dtype))


def test_permutations(device, ran, generator):
    with ran("randperm.generator_out"):
        got = torch.randperm(1001, generator=generator, device=device)
    places = list(range(1001))
    for i, number in enumerate(numbers(1001)):
        left = 1001 - i
        other = number * left >> 32
        places[left - 1], places[other] = places[other], places[left - 1]
    assert got.tolist() == places


@each_float
def test_dropout(device, ran, dtype):
    torch.manual_seed(SEED)
    x = torch.randn(33, 31).to(dtype)
    y = x.to(device).requires_grad_()
    with ran("native_dropout"):
        out = F.dropout(y, 0.25)
    kept = torch.tensor([n < int(0.75 * 2**32) for n in numbers(33 * 31)]).reshape(33, 31)
    torch.testing.assert_close(
        out.detach().cpu(), torch.where(kept, (x.double() / 0.75).to(dtype), torch.zeros((), dtype=dtype))
    )
    with ran("native_dropout_backward"):
        out.backward(torch.ones_like(out))
    torch.testing.assert_close(y.grad.cpu(), (kept / 0.75).to(dtype))
    assert torch.native_dropout(y, 1.0, True)[0].abs().sum().item() == 0
    transposed = torch.native_dropout(torch.randn(4, 6, device=device).t(), 0.5, True)
    assert transposed[0].stride() == (1, 6)


MOMENTS = {
    "exponential_": (lambda t: t.exponential_(2.0), 0.5, 0.5),
    "geometric_": (lambda t: t.geometric_(0.4), 2.5, math.sqrt(0.6) / 0.4),
    "log_normal_": (lambda t: t.log_normal_(0.1, 0.3), math.exp(0.145), math.exp(0.145) * math.sqrt(math.expm1(0.09))),
    "random_.to": (lambda t: t.random_(10), 4.5, math.sqrt(99 / 12)),
    "random_.from": (lambda t: t.random_(-5, 5), -0.5, math.sqrt(99 / 12)),
    "bernoulli_.Tensor": (lambda t: t.bernoulli_(torch.full((1,), 0.3, device=t.device)), 0.3, math.sqrt(0.21)),
    "uniform_": (lambda t: t.uniform_(-3, 5), 1, 8 / math.sqrt(12)),
}


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("dtype", each([torch.float32, torch.float64]))
def test_distributions(device, ran, name, dtype):
    torch.manual_seed(7)
    make, mean, deviation = MOMENTS[name]
    x = torch.empty(100_000, dtype=dtype, device=device)
    with ran(name):
        make(x)
    values = x.cpu().double()
    assert abs(values.mean().item() - mean) < 5 * deviation / math.sqrt(100_000)
    assert abs(values.std().item() - deviation) < 0.03 * deviation


def test_no_exponential_number_is_zero(device, ran):
    """As CUDA's: samplers divide by them. Of so many uniform numbers two are 0."""
    torch.manual_seed(7)
    with ran("exponential_"):
        x = torch.empty(40_000_000, dtype=torch.float16, device=device).exponential_()
    assert x.min().item() == 2**-24


def test_cauchys_median_and_quartiles(device, ran):
    torch.manual_seed(7)
    with ran("cauchy_"):
        x = torch.empty(100_000, device=device).cauchy_(1, 2)
    low, middle, high = x.cpu().quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    assert abs(middle - 1) < 0.05
    assert abs(high - low - 4) < 0.1


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32])
def test_whole_numbers(device, ran, dtype):
    torch.manual_seed(7)
    with ran("random_"):
        x = torch.empty(10_000, dtype=dtype, device=device).random_()
    assert x.min().item() >= 0
    assert len(set(x.tolist())) > 200
    y = torch.randint(3, 9, (10_000,), device=device, dtype=dtype)
    assert set(y.tolist()) == {3, 4, 5, 6, 7, 8}
    if dtype == torch.int64:
        wide = torch.randint(-(2**40), 2**40, (1000,), device=device)
        assert wide.abs().max().item() > 2**38


@pytest.mark.parametrize("count", [3 << 28, 3 << 30])
def test_whole_numbers_of_a_wide_range_come_equally_often(device, ran, count):
    """Of 32 bits the first third of the wider range came twice as often as the rest."""
    torch.manual_seed(7)
    with ran("random_.to"):
        x = torch.empty(60_000, dtype=torch.int64, device=device).random_(count)
    often = x.div(count // 6, rounding_mode="floor").bincount().tolist()
    assert len(often) == 6
    assert all(abs(one - 10_000) < 500 for one in often), often


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x.uniform_(2, 1), "from"),
        (lambda x: x.normal_(0, -1), "std"),
        (lambda x: x.bernoulli_(1.5), "between 0 and 1|p"),
        (lambda x: x.exponential_(0), "lambda"),
        (lambda x: x.random_(5, 5), "less than|greater than"),
        (lambda x: x.long().uniform_(), "not implemented"),
        (lambda x: x[:1].expand(4).uniform_(), "single memory location"),
        (lambda x: torch.native_dropout(x, 1.5, True), "between 0 and 1|dropout|p"),
    ],
)
def test_wrong_calls_raise_torchs_error(device, call, text):
    with pytest.raises(RuntimeError, match=text):
        call(torch.zeros(4, device=device))
