"""Inductor's reductions as folds: what a state begins with, how it takes an element, how two states become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from torch_backplane.inductor import dtypes
from torch_backplane.inductor.dtypes import literal
from torch_backplane.inductor.ops import extreme, function

States = Sequence[str]


@dataclass(frozen=True)
class Fold:
    """One kind of reduction on one dtype.

    Attributes:
        states: the dtype of each of the state's values.
        begin: what they begin with.
        step: the statements that take values (and, of argmax, the place) into a state.
        join: the statements that take the second state into the first.
        result: which of the states are results.
    """

    states: tuple[torch.dtype, ...]
    begin: tuple[str, ...]
    step: Callable[[States, States, str], list[str]]
    join: Callable[[States, States], list[str]]
    result: tuple[int, ...] = (0,)


def _simple(dtype: torch.dtype, begin: str, both: Callable[[str, str], str]) -> Fold:
    def join(a: States, b: States) -> list[str]:
        return [f"{a[0]} = {both(a[0], b[0])};"]

    return Fold((dtype,), (begin,), lambda state, values, place: join(state, values), join)


def _place_of(dtype: torch.dtype, word: str, begin: str) -> Fold:
    kind = dtypes.REGISTER[dtype]

    def join(a: States, b: States) -> list[str]:
        return [
            f"{{ const {kind} x_ = {b[0]}; const i64 i_ = {b[1]}; const i32 won_ = {word}(x_, i_, {a[0]}, {a[1]}); "
            f"{a[0]} = won_ ? x_ : {a[0]}; {a[1]} = won_ ? i_ : {a[1]}; }}"
        ]

    def step(state: States, values: States, place: str) -> list[str]:
        return join(state, (values[0], values[1] if len(values) > 1 else f"(i64)({place})"))

    return Fold((dtype, torch.int64), (begin, "9223372036854775807"), step, join, result=(1,))


def _welford(dtype: torch.dtype) -> Fold:
    kind = dtypes.REGISTER[dtype]
    zero = literal(0, dtype)

    def step(state: States, values: States, place: str) -> list[str]:
        mean, m2, weight = state
        return [
            f"{{ const {kind} x_ = {values[0]}; {weight} += ({kind})1; const {kind} away_ = x_ - {mean}; "
            f"{mean} += away_ / {weight}; {m2} += away_ * (x_ - {mean}); }}"
        ]

    return Fold((dtype,) * 3, (zero,) * 3, step, _join_welford(kind), result=(0, 1, 2))


def _join_welford(kind: str) -> Callable[[States, States], list[str]]:
    """Chan, Golub, LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979."""

    def join(a: States, b: States) -> list[str]:
        return [
            f"{{ const {kind} away_ = {b[0]} - {a[0]}; const {kind} weight_ = {a[2]} + {b[2]}; "
            f"const {kind} part_ = weight_ == ({kind})0 ? ({kind})0 : {b[2]} / weight_; "
            f"{a[1]} += {b[1]} + away_ * away_ * {a[2]} * part_; {a[0]} += away_ * part_; {a[2]} = weight_; }}"
        ]

    return join


def _online_softmax(dtype: torch.dtype) -> Fold:
    """The largest value, and the sum of exp(x - largest) (Milakov, Gimelshein, Online normalizer calculation, 2018)."""
    kind, exp = dtypes.REGISTER[dtype], function("exp", dtype)

    def join(a: States, b: States) -> list[str]:
        return [
            f"{{ const {kind} top_ = bp_max_{kind}({a[0]}, {b[0]}); "
            f"{a[1]} = {a[1]} * {exp}({a[0]} == top_ ? ({kind})0 : {a[0]} - top_) + "
            f"{b[1]} * {exp}({b[0]} == top_ ? ({kind})0 : {b[0]} - top_); {a[0]} = top_; }}"
        ]

    def step(state: States, values: States, place: str) -> list[str]:
        return join(state, (values[0], f"({kind})1"))

    return Fold((dtype,) * 2, (literal(-math.inf, dtype), literal(0, dtype)), step, join, result=(0, 1))


def fold_of(reduction_type: str, dtype: torch.dtype) -> Fold:
    """The fold of one of Inductor's reduction types, whose values are of that dtype.

    Raises NotImplementedError for a type that Inductor offers to backends that say that they have it.
    """
    dtype = dtypes.computed(dtype)
    kind = dtypes.REGISTER[dtype]
    lowest, highest = literal(-math.inf, dtype), literal(math.inf, dtype)
    if reduction_type in ("sum", "dot"):
        return _simple(dtype, literal(0, dtype), lambda a, b: f"{a} + {b}")
    if reduction_type == "prod":
        return _simple(dtype, literal(1, dtype), lambda a, b: f"{a} * {b}")
    if reduction_type == "xor_sum":
        return _simple(dtype, literal(0, dtype), lambda a, b: f"{a} ^ {b}")
    if reduction_type == "any":
        return _simple(dtype, literal(0, dtype), lambda a, b: f"({kind})(({a} != 0) | ({b} != 0))")
    if reduction_type in ("max", "min"):
        begin = lowest if reduction_type == "max" else highest
        return _simple(dtype, begin, lambda a, b: f"bp_{reduction_type}_{extreme(dtype)}({a}, {b})")
    if reduction_type == "argmax":
        return _place_of(dtype, "bp_above", lowest)
    if reduction_type == "argmin":
        return _place_of(dtype, "bp_below", highest)
    if reduction_type == "welford_reduce":
        return _welford(dtype)
    if reduction_type == "welford_combine":
        join = _join_welford(kind)
        return Fold(
            (dtype,) * 3, (literal(0, dtype),) * 3, lambda state, values, place: join(state, values), join, (0, 1, 2)
        )
    if reduction_type == "online_softmax_reduce":
        return _online_softmax(dtype)
    raise NotImplementedError(f"the reduction {reduction_type} in a kernel")
