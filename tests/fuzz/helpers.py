"""Functions that programs call beside torch's own. Each gives the same on every device; scripts carry their source."""

import torch


def make(shape, dtype, data, where):
    """A tensor with the contents of ``pattern``, on ``where``: a device, or ``"pinned"``."""
    made = pattern(shape, dtype, *data)
    return made.pin_memory() if where == "pinned" else made.to(where)


def pattern(shape, dtype, step, start, modulus, shift):
    """Small numbers that every dtype holds exactly."""
    numbers = torch.Size(shape).numel()
    row = torch.arange(numbers, dtype=torch.int64).mul_(step).add_(start).remainder_(modulus)
    if dtype is torch.bool:
        return row.bitwise_and_(1).to(torch.bool).view(shape)
    if dtype.is_complex:
        return torch.complex(row.float() - shift, row.float().neg() + 1).to(dtype).view(shape)
    return (row if dtype is torch.uint8 else row.sub_(shift)).to(dtype).view(shape)


def move(x, where, non_blocking=False):
    """A copy on another device."""
    return x.to(where, non_blocking=non_blocking, copy=True)


def bool_of_bytes(x):
    """Booleans whose bytes are not 0 and 1 alone."""
    return x.to(torch.uint8).clone().view(torch.bool)


def truths(x):
    """What a program must take such booleans for."""
    return x.to(torch.uint8), x.sum(), x.to(torch.float32) * 2, torch.where(x, 1, 2)


def zeros_without_memory(shape, dtype, where):
    """A tensor of zeros that has no memory, as forward-mode differentiation makes them."""
    return torch._efficientzerotensor(shape, dtype=dtype, device=where)


def free_storage(x):
    """Take the memory away from under a tensor, as sharded training does."""
    x.untyped_storage().resize_(0)


def grow_storage(x, elements):
    """Enlarge the memory of a tensor; what is added is not read."""
    storage = x.untyped_storage()
    storage.resize_(storage.nbytes() + elements * x.element_size())


def resize_and_fill(x, shape):
    """Another size, and all of it written."""
    x.resize_(shape).fill_(1)


def add_out(x, elements, out):
    """Add one to so many numbers."""
    torch.add(x.expand(elements), 1, out=out)


def clone_of(x, elements):
    """A copy of something larger."""
    return x.reshape(-1)[:1].expand(elements).contiguous()


def set_data(x, y):
    """``x.data = y``."""
    x.data = y


def put(x, index, value):
    """``x[index] = value``."""
    x[index] = value


def get(x, index):
    """``x[index]``."""
    return x[index]


def certain(x, how):
    """Draw random numbers into ``x`` from a distribution of which one value comes, or leave none of them."""
    {
        "bernoulli_": lambda: x.bernoulli_(1.0),
        "bernoulli_0": lambda: x.bernoulli_(0.0),
        "uniform_": lambda: x.uniform_(2, 2),
        "normal_": lambda: x.normal_(3.0, 0.0),
        "random_": lambda: x.random_(5, 6),
        "geometric_": lambda: x.geometric_(0.5).fill_(1),
        "exponential_": lambda: x.exponential_().fill_(2),
        "cauchy_": lambda: x.cauchy_().fill_(3),
        "log_normal_": lambda: x.log_normal_().fill_(4),
    }[how]()
    return x


def drawn(how, shape, where):
    """A result of random numbers that does not depend on them."""
    if how == "randperm":
        return torch.randperm(7, device=where).sort()[0]
    if how == "randint":
        return torch.randint(3, 4, shape, device=where)
    if how == "rand":
        x = torch.rand(shape, device=where)
        return (x >= 0) & (x < 1)
    if how == "randn":
        return torch.randn(shape, device=where).isfinite()
    if how == "dropout":
        return torch.nn.functional.dropout(torch.ones(shape, device=where), 0.0)
    if how == "dropout1":
        return torch.nn.functional.dropout(torch.ones(shape, device=where), 1.0)
    if how == "multinomial":
        return torch.multinomial(torch.tensor([0.0, 1.0, 0.0], device=where), 2, replacement=True)
    twice = [torch.rand(shape, device=where, generator=torch.Generator(where).manual_seed(7)) for _ in range(2)]
    return twice[0] == twice[1]


def gradients(function, inputs, others, options):
    """Gradients of the first inputs, of a sum of the results weighted by small numbers."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    result = function(*leaves, *others, **options)
    result = result[0] if isinstance(result, tuple) else result
    weights = torch.arange(result.numel(), device=result.device).remainder(3).sub(1).view(result.shape)
    return torch.autograd.grad((result * weights).sum(), leaves, allow_unused=True)


def forward_mode(function, x, tangent, other):
    """Value and derivative, of the first argument alone: the others' tangents are zeros without memory."""
    return torch.func.jvp(lambda first: function(first, other), (x,), (tangent,))
