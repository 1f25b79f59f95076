"""Inductor's reductions as folds: what a state begins with, how it takes an element, how two states become one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torch_backplane.inductor import dtypes
from torch_backplane.inductor.ops import function

States = Sequence[str]


@dataclass(frozen=True)
class _Kind:
    """A kind of reduction on any dtype.

    In texts, {a0} ... are the values of a state, {b0} ... those of another state or of an element, {kind} is the
    register type of the values, {extreme} the ending of bp_max_ and bp_min_, {place} the element's place.
    """

    begin: tuple[float | None, ...]
    """What each of the state's values begins with; None is a place, beyond all others."""
    join: str
    """Takes the second state into the first."""
    step: str = ""
    """Takes an element into the state; without it, an element is joined as a state."""
    rest: str = ""
    """What makes a single value a state of two."""
    result: tuple[int, ...] = (0,)


# The value, then the first place of it.
_PLACE = (
    "{{ const {kind} x_ = {b0}; const i64 i_ = {b1}; const i32 won_ = %s(x_, i_, {a0}, {a1}); "
    "{a0} = won_ ? x_ : {a0}; {a1} = won_ ? i_ : {a1}; }}"
)
# Mean, sum of squared deviations, weight: Chan, Golub, LeVeque, Updating formulae and a pairwise algorithm for
# computing sample variances, 1979.
_MOMENTS = (
    "{{ const {kind} away_ = {b0} - {a0}; const {kind} weight_ = {a2} + {b2}; "
    "const {kind} part_ = weight_ == ({kind})0 ? ({kind})0 : {b2} / weight_; "
    "{a1} += {b1} + away_ * away_ * {a2} * part_; {a0} += away_ * part_; {a2} = weight_; }}"
)
_MOMENTS_STEP = (
    "{{ const {kind} x_ = {b0}; {a2} += ({kind})1; const {kind} away_ = x_ - {a0}; "
    "{a0} += away_ / {a2}; {a1} += away_ * (x_ - {a0}); }}"
)
# The largest value, and the sum of exp(x - largest): Milakov, Gimelshein, Online normalizer calculation, 2018.
_SOFTMAX = (
    "{{ const {kind} top_ = bp_max_{kind}({a0}, {b0}); "
    "{a1} = {a1} * {exp}({a0} == top_ ? ({kind})0 : {a0} - top_) + "
    "{b1} * {exp}({b0} == top_ ? ({kind})0 : {b0} - top_); {a0} = top_; }}"
)
_SUM = _Kind((0,), "{a0} = {a0} + {b0};")
_KINDS = {
    "sum": _SUM,
    "dot": _SUM,
    "prod": _Kind((1,), "{a0} = {a0} * {b0};"),
    "xor_sum": _Kind((0,), "{a0} = {a0} ^ {b0};"),
    "any": _Kind((0,), "{a0} = ({kind})(({a0} != 0) | ({b0} != 0));"),
    "max": _Kind((-math.inf,), "{a0} = bp_max_{extreme}({a0}, {b0});"),
    "min": _Kind((math.inf,), "{a0} = bp_min_{extreme}({a0}, {b0});"),
    "argmax": _Kind((-math.inf, None), _PLACE % "bp_above", rest="(i64)({place})", result=(1,)),
    "argmin": _Kind((math.inf, None), _PLACE % "bp_below", rest="(i64)({place})", result=(1,)),
    "welford_reduce": _Kind((0, 0, 0), _MOMENTS, step=_MOMENTS_STEP, result=(0, 1, 2)),
    "welford_combine": _Kind((0, 0, 0), _MOMENTS, result=(0, 1, 2)),
    "online_softmax_reduce": _Kind((-math.inf, 0), _SOFTMAX, rest="({kind})1", result=(0, 1)),
}


class Fold:
    """One kind of reduction on one dtype.

    Attributes:
        states: the dtype of each of the state's values.
        begin: what they begin with.
        result: which of them are results.
    """

    def __init__(self, kind: _Kind, dtype: torch.dtype) -> None:
        self._kind = kind
        self.result = kind.result
        self.states = tuple(torch.int64 if number is None else dtype for number in kind.begin)
        self.begin = [
            "9223372036854775807" if number is None else dtypes.literal(number, dtype) for number in kind.begin
        ]
        register = dtypes.REGISTER[dtype]
        extreme = register if dtype.is_floating_point else "int"
        self._words = {"kind": register, "extreme": extreme, "exp": function("exp", dtype)}

    def join(self, a: States, b: States) -> str:
        """The statements that take the second state into the first."""
        return self._text(self._kind.join, a, b)

    def step(self, state: States, values: States, place: str) -> str:
        """The statements that take values, of an element at that place, into a state."""
        if self._kind.rest and len(values) == 1:
            values = [*values, self._kind.rest.format(place=place, **self._words)]
        return self._text(self._kind.step or self._kind.join, state, values)

    def _text(self, text: str, a: States, b: States) -> str:
        operands = {f"{word}{i}": one for word, values in (("a", a), ("b", b)) for i, one in enumerate(values)}
        return text.format(**operands, **self._words)


def fold_of(reduction_type: str, dtype: torch.dtype) -> Fold:
    """The fold of one of Inductor's reduction types, whose values are of that dtype.

    Raises NotImplementedError for a type that Inductor uses only on backends that declare it.
    """
    if reduction_type not in _KINDS:
        raise NotImplementedError(f"the reduction {reduction_type} in a kernel")
    return Fold(_KINDS[reduction_type], dtypes.computed(dtype))
