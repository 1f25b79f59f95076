"""What to write when a utility fails: for each failure that is known, the line to add."""

from __future__ import annotations

import re

import torch

from torch_backplane import _backend
from torch_backplane.ops.signature import parameters_of
from torch_backplane.testing.opchecks.call import Call


def advise(utility: str, call: Call, error: BaseException) -> str:
    """What to do about a failure; empty if nothing is known of it."""
    text = _whole_text(error)
    for (of, pattern), advice in _ADVICE.items():
        match = re.search(pattern, text)
        if match and utility.startswith(of):
            return advice.format_map(_Facts(call, match))
    return ""


def _whole_text(error: BaseException | None) -> str:
    texts = []
    while error is not None:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


_FORMULA = (
    "register its formula:\n"
    "  def setup_context(ctx, inputs, output):\n"
    "      ctx.save_for_backward(...)\n"
    "  def backward(ctx, {grads}):\n"
    "      return {gradients}  # None where there is none\n"
    "  {register_autograd}\n"
    "or, if it has no gradient, give samples that do not require grad"
)
_FAKE_LINES = '  @torch.library.register_fake("{op}")\n  def _({signature}):\n      return {fake_results}'
_ADD_FAKE = f"register a fake, which makes results of the right shape, dtype and strides:\n{_FAKE_LINES}"
_DATA_DEPENDENT = r"DataDependent|data-dependent|data_ptr"

_ADVICE = {
    ("test_schema", r"Argument (\w+) is not defined as mutable but was mutated"): (
        "if it is to write to {found}, say so where it is defined, mutates_args=[{mutated}], which is the schema\n"
        "  {schema_written}\n"
        "if it is not, let the kernel write to {found}.clone()"
    ),
    ("test_schema", r"Argument (\w+) is not defined to alias output but was aliasing"): (
        "return a new tensor: .clone() what the kernel returns. A view would need the schema\n"
        "  {schema_viewed}\n"
        "and could not be compiled: torch functionalizes no views but its own"
    ),
    ("test_schema", r"`outputs\[\d+\] is (\w+)"): (
        "return {found}.clone(), or, if the operator writes to {found}, nothing: the caller has {found}"
    ),
    ("test_schema", r"Outputs \d+ and (\d+) alias unexpectedly"): (
        "give each result separate memory: .clone() result {found}"
    ),
    ("test_autograd_registration", r"requires grad|requires_grad=True"): (
        "take the autograd.Function out of the kernel, and give its two halves to\n"
        "  {register_autograd}\n"
        'or, if the kernel is made of differentiable operators, register it for "CompositeImplicitAutograd"'
    ),
    ("test_gradcheck", r"no gradient formula|no autograd formula was registered"): _FORMULA,
    ("test_gradcheck", r"Jacobian mismatch|not the CPU reference's"): (
        "correct the backward of\n"
        "  {register_autograd}\n"
        "and keep samples away from where the operator has no derivative"
    ),
    ("test_faketensor", r"UnsupportedOperator"): _ADD_FAKE,
    ("test_faketensor", _DATA_DEPENDENT): (
        "a fake sees no values. A size that depends on them is a symbol:\n"
        "  size = torch.library.get_ctx().new_dynamic_size()"
    ),
    ("test_faketensor", r"mismatch|not equal"): f"make the fake's result what the kernel's was here:\n{_FAKE_LINES}",
    ("test_aot", r"no autograd formula was registered"): _FORMULA,
    ("test_aot", r"UnsupportedOperator"): _ADD_FAKE,
    ("test_aot", r"alias annotation"): "{no_alias}",
    ("test_aot", rf"{_DATA_DEPENDENT}|Gradients of the operator are different"): (
        "write backward and fake with operators on tensors: no .item(), no numpy, no data_ptr(), no state outside of "
        "the arguments. What cannot be traced becomes an operator with a fake, which the backward calls"
    ),
    ("test_aot", r"SymInt"): (
        "sizes are symbols here: let the fake and the backward compute with them by + - * // and torch.sym_max(), "
        "not by int(), not as a key of a dict"
    ),
    ("test_aot", r"Outputs of the operator are different"): (
        "let the result depend on the arguments alone: what the kernel keeps between calls is to be an argument "
        "(a tensor in mutates_args, where it is changed)"
    ),
    ("test_vmap", r"."): (
        "correct the rule, or remove it: without one, torch loops\n"
        '  @torch.library.register_vmap("{op}")\n'
        "  def _(info, in_dims, {signature}):\n"
        "      ...  # in_dims: where each argument has its batch, None where it has none\n"
        "      return result, out_dims"
    ),
    ("test_autocast", r"."): (
        "let autocast give it inputs of one dtype:\n"
        '  torch.library.register_autocast("{op}", "{device}", torch.float32)\n'
        "torch.float16 or torch.bfloat16, if it is to compute in that"
    ),
    ("test_noncontiguous", r"gradients"): (
        "let the backward use the strides of the gradients it gets, or begin with\n  grad = grad.contiguous()"
    ),
    ("test_noncontiguous", r""): "let the kernel use strides and offsets ({names}), or {contiguous}",
    ("test_empty", r"."): (
        "begin the kernel with the case of no elements, and launch nothing:\n  if {first}.numel() == 0: return ..."
    ),
    ("test_cpu_reference", r"there is no CPU reference"): (
        "register what it computes, in plain operators of PyTorch:\n"
        '  @torch.library.register_kernel("{op}", "cpu")\n'
        "  def _({signature}): ...\n"
        "or give check_op(..., reference=function)"
    ),
    ("test_cpu_reference", r"not the CPU reference's"): (
        "one of the two is wrong. The device's kernel is registered by\n"
        '  torch.library.register_kernel("{op}", "{device}")\n'
        'and the reference the same for "cpu"; if they differ by rounding alone: check_op(..., rtol=..., atol=...)'
    ),
}
"""Utility and pattern of a failure -> what to do, with methods of :class:`_Facts` in braces."""


class _Facts(dict[str, str]):
    """What advice has in braces: each method, called when a text asks for it."""

    def __init__(self, call: Call, match: re.Match[str]) -> None:
        self._call, self._match = call, match
        self._arguments = call.op._schema.arguments

    def __missing__(self, name: str) -> str:
        return str(getattr(self, name)())

    def op(self) -> str:
        return self._call.name

    def device(self) -> str:
        return _backend.device

    def found(self) -> str:
        """What the message names. Torch's messages call an argument ``self`` by the name ``input``."""
        names = [argument.name for argument in self._arguments]
        return "self" if self._match[1] == "input" and "input" not in names else self._match[1]

    def mutated(self) -> str:
        return ", ".join(f'"{name}"' for name in [*self._call.mutated, self.found()])

    def schema_written(self) -> str:
        return self._schema("(a!)", "")

    def schema_viewed(self) -> str:
        return self._schema("(a)", "(a)")

    def _schema(self, of_argument: str, of_result: str) -> str:
        name = self.found()
        before, arrow, after = str(self._call.op._schema).partition(" -> ")
        before = re.sub(rf"Tensor(\S*) {name}\b", rf"Tensor{of_argument}\1 {name}", before)
        return before + arrow + re.sub(r"^Tensor\b", f"Tensor{of_result}", after)

    def no_alias(self) -> str:
        if not self._call.mutated:
            return "torch functionalizes no views but its own: return a new tensor, and take the (a) out of the schema"
        schema = str(self._call.op._schema).partition(" -> ")[0] + " -> ()"
        return f"torch cannot functionalize a result that is an argument: return nothing\n  {schema}"

    def names(self) -> str:
        return ", ".join(dict.fromkeys(self._call.argument_names()))

    def first(self) -> str:
        return next(iter(self._call.argument_names()), "x")

    def contiguous(self) -> str:
        mutated = self._call.mutated
        if mutated:
            return f"compute into a contiguous tensor and end with\n  {mutated[0]}.copy_(result)"
        return f"begin with\n  {self.first()} = {self.first()}.contiguous()"

    def signature(self) -> str:
        return parameters_of(self._call.op._schema)

    def register_autograd(self) -> str:
        return f'torch.library.register_autograd("{self.op()}", backward, setup_context=setup_context)'

    def grads(self) -> str:
        results = len(self._call.op._schema.returns)
        return "grad" if results == 1 else ", ".join(f"grad_{i}" for i in range(results))

    def gradients(self) -> str:
        return ", ".join(f"grad_of_{argument.name}" for argument in self._arguments)

    def fake_results(self) -> str:
        try:
            copy = self._call.detached().copy()
            found = copy.op(*copy.args, **copy.kwargs)
        except Exception:
            return "..."
        results = found if isinstance(found, (tuple, list)) else [found]
        return ", ".join(_fake_result(copy, result) for result in results)


def _fake_result(call: Call, result: object) -> str:
    if not isinstance(result, torch.Tensor):
        return repr(result)
    inputs = list(zip(call.argument_names(), call.tensors, strict=True))
    for name, tensor in inputs:
        if (tensor.shape, tensor.stride(), tensor.device) == (result.shape, result.stride(), result.device):
            dtype = "" if tensor.dtype == result.dtype else f", dtype={result.dtype}"
            return f"torch.empty_like({name}{dtype})"
    source = f"{inputs[0][0]}.new_empty_strided" if inputs else "torch.empty_strided"
    numbers = f"{tuple(result.shape)}, {result.stride()}, dtype={result.dtype}"
    return f"{source}({numbers})  # of this sample; compute it from the shapes"
