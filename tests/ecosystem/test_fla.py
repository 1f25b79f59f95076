"""Flash Linear Attention: operators in chunks, recurrent and parallel, with gradients, against its naive ones."""

import pytest
import torch
import torch.nn.functional as F
from beside import moved, tensors
from one_configuration import one_configuration

with one_configuration():
    from fla import ops

from fla.ops.abc.naive import naive_recurrent_abc
from fla.ops.attn.naive import naive_parallel_attn
from fla.ops.attnres.naive import naive_attnres
from fla.ops.based.naive import naive_parallel_based
from fla.ops.cyfa.naive import naive_recurrent_cyfa
from fla.ops.delta_rule.naive import delta_rule_recurrence
from fla.ops.forgetting_attn.naive import naive_forgetting_attn
from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
from fla.ops.generalized_delta_rule.iplr.naive import iplr_recurrence
from fla.ops.gla.naive import naive_recurrent_gla
from fla.ops.gsa.naive import naive_recurrent_gsa
from fla.ops.hgrn.naive import naive_recurrent_hgrn
from fla.ops.kda.naive import naive_recurrent_kda
from fla.ops.linear_attn.naive import naive_recurrent_linear_attn
from fla.ops.log_linear_attn.naive import naive_log_linear_attn
from fla.ops.mesa_net.naive import naive_mesa_net_exact
from fla.ops.momentum_delta_rule.naive import recurrent_momentum_delta_rule_ref
from fla.ops.nsa.naive import naive_nsa
from fla.ops.parallax.naive import naive_parallax
from fla.ops.path_attn.naive import naive_path_attn
from fla.ops.precond_gated_delta_rule.naive import naive_recurrent_precond_gated_delta_rule
from fla.ops.precond_kda.naive import naive_recurrent_precond_kda
from fla.ops.retention.naive import naive_retention
from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
from fla.ops.simple_gla.naive import naive_recurrent_simple_gla
from fla.ops.stickbreaking_attn.naive import naive_stickbreaking_attn

LIBRARIES = ("fla-core", "triton")
T, H, D = 80, 2, 32  # a whole chunk of 64, and a part of one


def drawn(*shape, seed=1, scale=1.0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).requires_grad_()


def unit(x):
    return F.normalize(x.detach(), dim=-1).requires_grad_()


def gate(*shape, seed=4):
    return F.logsigmoid(drawn(*shape, seed=seed).detach() + 2).requires_grad_()


def share(*shape, seed=5):
    return drawn(*shape, seed=seed).detach().sigmoid().requires_grad_()


def heads_first(function):
    """Of a reference whose heads stand before the positions."""

    def called(*args, **kwargs):
        found = function(*(one.transpose(1, 2) if one.dim() > 2 else one for one in args), **kwargs)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return called


def comba(q, k, v, p, g, beta):
    """As the kernels do: p reads the state before it falls. In the library's naive one it reads it after."""
    q, k, v, p, g, beta = (one.transpose(1, 2) for one in (q, k, v, p, g, beta))
    state, found = torch.zeros(1, H, D, D), []
    for i in range(T):
        written = (v[:, :, i] - (state * p[:, :, i, :, None]).sum(-2)) * beta[:, :, i, None]
        state = state * g[:, :, i, None, None].exp() + k[:, :, i, :, None] * written[:, :, None]
        found.append(torch.einsum("bhd,bhdm->bhm", q[:, :, i] * D**-0.5, state))
    return torch.stack(found, 1)


def normed(function):
    """Of a reference for an operator that norms q and k itself."""
    return lambda q, k, *rest: function(F.normalize(q, dim=-1), F.normalize(k, dim=-1), *rest)


def halves(*arguments):
    return [one.detach().bfloat16().requires_grad_() for one in arguments]


def in_float(function):
    return lambda *arguments: function(*(one.float() for one in arguments))


def momentum(q, k, v, alpha, mu, p, beta, eta):
    return recurrent_momentum_delta_rule_ref(q, k, v, alpha, mu, p, beta, eta)


def wall(q, k, v, g):
    falls = g.cumsum(1)
    scores = torch.einsum("bihd,bjhd,bijhd->bhij", q, k, (falls[:, :, None] - falls[:, None]).clamp(max=0).exp())
    scores = (scores * D**-0.5).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)


def lightning(q, k, v):
    fall = -(8 / H * (1 - 1 / 4)) * torch.arange(H, dtype=torch.float)
    return naive_recurrent_simple_gla(q, k, v, fall.expand(1, T, H))


def chunk_lightning(q, k, v):
    return ops.chunk_lightning_attn(q, k, v, 1, 4)


Q, K, V = drawn(1, T, H, D), unit(drawn(1, T, H, D, seed=2)), drawn(1, T, H, D, seed=3)
G, GK, BETA = gate(1, T, H), gate(1, T, H, D), share(1, T, H)
A = unit(drawn(1, T, H, D, seed=8))
NEGATIVE = (-A.detach()).requires_grad_()
SLOTS = drawn(1, T, H, 16, seed=6)
UNIT_Q = unit(Q)

KDA = UNIT_Q, K, V, GK, BETA
DELTA = UNIT_Q, K, V, BETA
GATED = UNIT_Q, K, V, G, BETA
PRECONDITIONED = UNIT_Q, K, V, gate(1, T, H, seed=9), G, share(1, T, H, seed=10), BETA
PRECONDITIONED_KDA = UNIT_Q, K, V, GK, gate(1, T, H, seed=9), share(1, T, H, seed=10), BETA
MOMENTUM = UNIT_Q, K, V, G, gate(1, T, H, seed=9), A, BETA, share(1, T, H, seed=10)
DPLR = Q, K, V, A, NEGATIVE, GK
CYFA = (
    *(UNIT_Q, K, V, G, share(1, T, H, seed=9), BETA),
    *(drawn(H, 7, 7, seed=10), drawn(D, seed=11), drawn(D, seed=12)),
)


def ordered(function, order, **kwargs):
    """With the arguments in another order."""
    return lambda *args: function(*(args[i] for i in order), **kwargs)


def gated_reference(q, k, v, g, beta):
    return naive_recurrent_gated_delta_rule(q, k, v, beta, g)


CASES = {
    "chunk_abc": (ops.chunk_abc, heads_first(naive_recurrent_abc), Q, K, V, SLOTS),
    "chunk_comba": (ops.chunk_comba, comba, *DELTA[:3], A, G, BETA),
    "chunk_cyfa": (
        lambda *args: ops.chunk_cyfa(*args, 1e-6, 1e-6),
        lambda *args: naive_recurrent_cyfa(*args, 1e-6, 1e-6),
        *CYFA,
    ),
    "chunk_delta_rule": (ops.chunk_delta_rule, in_float(heads_first(delta_rule_recurrence)), *halves(*DELTA)),
    "chunk_dplr_delta_rule": (ops.chunk_dplr_delta_rule, heads_first(dplr_recurrence), *DPLR),
    "chunk_gated_delta_rule": (ops.chunk_gated_delta_rule, gated_reference, *GATED),
    "chunk_gdn": (ops.chunk_gdn, gated_reference, *GATED),
    "chunk_gla": (ops.chunk_gla, naive_recurrent_gla, Q, K, V, GK),
    "chunk_gsa": (ops.chunk_gsa, naive_recurrent_gsa, Q, K, V, SLOTS, gate(1, T, H, 16)),
    "chunk_iplr_delta_rule": (
        ops.chunk_iplr_delta_rule,
        heads_first(iplr_recurrence),
        *(one.detach() for one in DPLR[:-1]),
    ),
    "chunk_kda": (ops.chunk_kda, naive_recurrent_kda, *KDA),
    "chunk_lightning_attn": (chunk_lightning, lightning, Q, K, V),
    "chunk_linear_attn": (
        lambda *args: ops.chunk_linear_attn(*args, normalize=False),
        naive_recurrent_linear_attn,
        *(Q, K, V),
    ),
    "chunk_log_linear_attn": (
        ops.chunk_log_linear_attn,
        naive_log_linear_attn,
        *(drawn(1, T, H, 64), unit(drawn(1, T, H, 64, seed=2)), drawn(1, T, H, 64, seed=3)),
        *(G, share(1, T, H, 8)),
    ),
    "chunk_mesa_net": (
        ops.chunk_mesa_net,
        ordered(naive_mesa_net_exact, (0, 1, 2, 3, 5, 4)),
        *(UNIT_Q, K, V, G, BETA, share(H, D, seed=9)),
    ),
    "chunk_momentum_delta_rule": (
        lambda *args: ops.chunk_momentum_delta_rule(*args, use_qk_l2norm_in_kernel=False, use_p_times_alpha=False),
        in_float(momentum),
        *halves(*MOMENTUM),
    ),
    "chunk_precond_gated_delta_rule": (
        ops.chunk_precond_gated_delta_rule,
        normed(naive_recurrent_precond_gated_delta_rule),
        *PRECONDITIONED,
    ),
    "chunk_precond_kda": (ops.chunk_precond_kda, normed(naive_recurrent_precond_kda), *PRECONDITIONED_KDA),
    "chunk_retention": (ops.chunk_retention, heads_first(naive_retention), Q, K, V),
    "chunk_rwkv6": (ops.chunk_rwkv6, heads_first(naive_recurrent_rwkv6), Q, K, V, GK, drawn(H, D, seed=7)),
    "chunk_rwkv7": (
        ordered(lambda *args: ops.chunk_rwkv7(*args, scale=D**-0.5), (0, 5, 1, 2, 3, 4)),
        heads_first(dplr_recurrence),
        *DPLR,
    ),
    "chunk_simple_gla": (ops.chunk_simple_gla, naive_recurrent_simple_gla, Q, K, V, G),
    "fused_attnres": (
        lambda q, *rest: ops.fused_attnres(q, rest[:-1], rest[-1]),
        lambda q, *rest: naive_attnres(q, rest[:-1], rest[-1]),
        *(drawn(64, seed=i) if i in (0, 5) else drawn(2, 9, 64, seed=i) for i in range(6)),
    ),
    "fused_chunk_based": (
        ops.fused_chunk_based,
        heads_first(naive_parallel_based),
        *(one[..., :16] for one in (Q, K)),
        V,
    ),
    "fused_chunk_linear_attn": (
        lambda *args: ops.fused_chunk_linear_attn(*args, normalize=False),
        naive_recurrent_linear_attn,
        *(Q, K, V),
    ),
    "fused_chunk_retention": (ops.fused_chunk_retention, heads_first(naive_retention), Q, K, V),
    "fused_chunk_simple_gla": (ops.fused_chunk_simple_gla, naive_recurrent_simple_gla, Q, K, V, G),
    "fused_recurrent_comba": (
        ordered(ops.fused_recurrent_comba, (0, 1, 3, 2, 4, 5)),
        comba,
        *(one.detach() for one in (*DELTA[:3], A, G, BETA)),
    ),
    "fused_recurrent_cyfa": (
        lambda *args: ops.fused_recurrent_cyfa(*args, 1e-6, 1e-6),
        lambda *args: naive_recurrent_cyfa(*args, 1e-6, 1e-6),
        *(one.detach() for one in CYFA),
    ),
    "fused_recurrent_delta_rule": (ops.fused_recurrent_delta_rule, heads_first(delta_rule_recurrence), *DELTA),
    "fused_recurrent_dplr_delta_rule": (
        ops.fused_recurrent_dplr_delta_rule,
        heads_first(dplr_recurrence),
        *(one.detach() for one in DPLR),
    ),
    **{
        f"fused_recurrent_{name}": (
            lambda q, k, v, g, beta, name=name: getattr(ops, f"fused_recurrent_{name}")(q, k, v, g, beta=beta),
            gated_reference,
            *(one.detach() for one in GATED),
        )
        for name in ("gated_delta_rule", "gdn")
    },
    "fused_recurrent_gla": (ops.fused_recurrent_gla, naive_recurrent_gla, Q, K, V, GK),
    "fused_recurrent_gsa": (ops.fused_recurrent_gsa, naive_recurrent_gsa, Q, K, V, SLOTS, gate(1, T, H, 16)),
    "fused_recurrent_hgrn": (ops.fused_recurrent_hgrn, naive_recurrent_hgrn, drawn(2, T, 64), gate(2, T, 64)),
    "fused_recurrent_iplr_delta_rule": (
        ops.fused_recurrent_iplr_delta_rule,
        heads_first(iplr_recurrence),
        *DPLR[:-1],
    ),
    "fused_recurrent_kda": (ops.fused_recurrent_kda, naive_recurrent_kda, *(one.detach() for one in KDA)),
    "fused_recurrent_lightning_attn": (
        lambda *args: ops.fused_recurrent_lightning_attn(*args, 1, 4),
        lightning,
        *(Q, K, V),
    ),
    "fused_recurrent_linear_attn": (ops.fused_recurrent_linear_attn, naive_recurrent_linear_attn, Q, K, V),
    "fused_recurrent_momentum_delta_rule": (
        lambda *args: ops.fused_recurrent_momentum_delta_rule(
            *args, use_qk_l2norm_in_kernel=False, use_p_times_alpha=False
        ),
        momentum,
        *(one.detach() for one in MOMENTUM),
    ),
    "fused_recurrent_precond_gated_delta_rule": (
        lambda q, k, v, g_atk, g, beta_atk, beta: ops.fused_recurrent_precond_gated_delta_rule(
            q, k, v, g, beta=beta, g_atk=g_atk, beta_atk=beta_atk
        ),
        normed(naive_recurrent_precond_gated_delta_rule),
        *(one.detach() for one in PRECONDITIONED),
    ),
    "fused_recurrent_precond_kda": (
        ops.fused_recurrent_precond_kda,
        normed(naive_recurrent_precond_kda),
        *(one.detach() for one in PRECONDITIONED_KDA),
    ),
    "fused_recurrent_retention": (ops.fused_recurrent_retention, heads_first(naive_retention), Q, K, V),
    "fused_recurrent_rwkv6": (
        ops.fused_recurrent_rwkv6,
        heads_first(naive_recurrent_rwkv6),
        *(Q, K, V, GK, drawn(H, D, seed=7)),
    ),
    "fused_recurrent_rwkv7": (
        ordered(ops.fused_recurrent_rwkv7, (0, 5, 1, 2, 3, 4)),
        heads_first(dplr_recurrence),
        *(one.detach() for one in DPLR),
    ),
    "fused_recurrent_simple_gla": (ops.fused_recurrent_simple_gla, naive_recurrent_simple_gla, Q, K, V, G),
    "parallel_attn": (ops.parallel_attn, naive_parallel_attn, Q, K, V),
    "parallel_based": (ops.parallel_based, heads_first(naive_parallel_based), *(one[..., :16] for one in (Q, K)), V),
    "parallel_forgetting_attn": (ops.parallel_forgetting_attn, naive_forgetting_attn, Q, K, V, G),
    "parallel_nsa": (
        lambda *args: ops.parallel_nsa(*args, block_counts=4, block_size=16),
        lambda *args: naive_nsa(*args, block_counts=4, block_size=16),
        *(drawn(1, T, 16, D), drawn(1, T, 1, D, seed=2), drawn(1, T, 1, D, seed=3)),
        *(share(1, T, 16, seed=i) for i in (4, 5)),
    ),
    "parallel_parallax": (ops.parallel_parallax, in_float(naive_parallax), *halves(Q, A, K, V)),
    "parallel_path_attn": (
        lambda *args: ops.parallel_path_attn(*args, scale=D**-0.5),
        lambda *args: naive_path_attn(*args, scale=D**-0.5),
        *(Q, K, V, A, BETA, G),
    ),
    "parallel_retention": (ops.parallel_retention, heads_first(naive_retention), Q, K, V),
    "parallel_simple_gla": (ops.parallel_simple_gla, naive_recurrent_simple_gla, Q, K, V, G),
    "parallel_stickbreaking_attn": (ops.parallel_stickbreaking_attn, naive_stickbreaking_attn, Q, K, V),
    "parallel_wall_attn": (
        lambda *args: ops.parallel_wall_attn(*args, scale=D**-0.5),
        wall,
        *(Q, K, V, GK),
    ),
}
# What they raise, and whose it is.
REMOVED = {"fused_chunk_delta_rule", "fused_chunk_gla"}  # in the library: they raise NotImplementedError everywhere
ON_THE_DEVICE = {"parallel_nsa"}  # its reference has a kernel in it
UNTRIED = {"parallel_wall_attn_decode"}  # it needs a cache that a model makes


LIMITS = {"chunk_mesa_net": 5e-3}  # thirty steps towards the solution of the reference


def results(function, arguments, place):
    given = moved(arguments, place)
    found = tensors(function(*given))[0]
    if found.requires_grad:
        (found.float() * (1 + torch.arange(found.numel(), device=place).view_as(found) % 5)).sum().backward()
    return found, [one.grad for one in tensors(given) if one.requires_grad]


def far(found, expected):
    """The error's length beside that of the values: chunks add in another order than recurrences."""
    ours, theirs = found.detach().cpu().double(), expected.detach().cpu().double()
    return float((ours - theirs).norm() / (theirs.norm() + 1e-9))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.sample] if i % 16 == 0 else []) for i, name in enumerate(CASES)]
)
def test_operator(device, name):
    ours, theirs, *arguments = CASES[name]
    arguments = [one.detach().requires_grad_(one.requires_grad) for one in arguments]
    expected, gradients = results(theirs, arguments, device if name in ON_THE_DEVICE else "cpu")
    found, found_gradients = results(ours, arguments, device)
    assert found.device == device
    assert found.shape == expected.shape
    limit = 1e-2 if found.dtype == torch.bfloat16 else LIMITS.get(name, 1e-4)
    assert far(found, expected) < limit
    for got, wanted in zip(found_gradients, gradients, strict=True):
        assert (got is None) == (wanted is None)
        if wanted is not None:
            assert far(got, wanted) < limit


def test_all_are_tried():
    assert set(ops.__all__) == {*CASES, *REMOVED, *UNTRIED}
    for name in REMOVED:
        with pytest.raises(NotImplementedError):
            getattr(ops, name)()
