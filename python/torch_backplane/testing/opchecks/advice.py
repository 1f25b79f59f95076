"""What to write when a utility fails: for each failure that is known, the line to add."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import torch

from torch_backplane import _backend
from torch_backplane.testing.opchecks.call import Call

__all__ = ["advise"]


def advise(utility: str, call: Call, error: BaseException) -> str:
    """What to do about a failure; empty if nothing is known of it.

    Args:
        utility: the utility's name.
        call: the call that failed.
        error: what the utility raised.
    """
    text = _whole_text(error)
    for row in _ROWS:
        match = re.search(row.pattern, text)
        if match and utility.startswith(row.utility):
            return row.advice(call, match)
    return ""


def _whole_text(error: BaseException | None) -> str:
    texts = []
    while error is not None:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


class _Row(NamedTuple):
    utility: str
    pattern: str
    advice: Callable[[Call, re.Match[str]], str]


def _mutation(call: Call, match: re.Match[str]) -> str:
    name = _argument(call, match[1])
    names = ", ".join(f'"{n}"' for n in [*call.mutated, name])
    return (
        f"if it is to write to {name}, say so where it is defined, mutates_args=[{names}], which is the schema\n"
        f"  {_annotated(call, name, '!')}\n"
        f"if it is not, let the kernel write to {name}.clone()"
    )


def _alias(call: Call, match: re.Match[str]) -> str:
    name = _argument(call, match[1])
    return (
        "return a new tensor: .clone() what the kernel returns. A view would need the schema\n"
        f"  {_annotated(call, name, '')}\n"
        "and could not be compiled: torch functionalizes no views but its own"
    )


def _returns_input(call: Call, match: re.Match[str]) -> str:
    name = _argument(call, match[1])
    return f"return {name}.clone(), or, if the operator writes to {name}, nothing: who called it has {name}"


def _outputs_alias(call: Call, match: re.Match[str]) -> str:
    return f"give each result memory of its own: .clone() result {match[2]}"


def _move_formula(call: Call, match: re.Match[str]) -> str:
    return (
        "take the autograd.Function out of the kernel, and give its two halves to\n"
        f"  {_register_autograd(call)}\n"
        'or, if the kernel is made of differentiable operators, register it for "CompositeImplicitAutograd"'
    )


def _formula(call: Call, match: re.Match[str]) -> str:
    return (
        f"register its formula:\n{_formula_lines(call)}\n"
        "or, if it has no gradient, give samples that do not require grad"
    )


def _wrong_formula(call: Call, match: re.Match[str]) -> str:
    return (
        "correct the backward of\n"
        f"  {_register_autograd(call)}\n"
        "and keep samples away from where the operator has no derivative"
    )


def _add_fake(call: Call, match: re.Match[str]) -> str:
    return f"register a fake, which makes results of the right shape, dtype and strides:\n{_fake_lines(call)}"


def _correct_fake(call: Call, match: re.Match[str]) -> str:
    return f"make the fake's result what the kernel's was here:\n{_fake_lines(call)}"


def _fake_reads(call: Call, match: re.Match[str]) -> str:
    return (
        "a fake sees no values. A size that depends on them is a symbol:\n"
        "  size = torch.library.get_ctx().new_dynamic_size()"
    )


def _pure(call: Call, match: re.Match[str]) -> str:
    return (
        "let the result depend on the arguments alone: what the kernel keeps between calls is to be an argument "
        "(a tensor in mutates_args, where it is changed)"
    )


def _traceable(call: Call, match: re.Match[str]) -> str:
    return (
        "write backward and fake with operators on tensors: no .item(), no numpy, no data_ptr(), no state of their "
        "own. What cannot be traced becomes an operator with a fake, which the backward calls"
    )


def _symbolic(call: Call, match: re.Match[str]) -> str:
    return (
        "sizes are symbols here: let the fake and the backward compute with them by + - * // and torch.sym_max(), "
        "not by int(), not as a key of a dict"
    )


def _no_alias_mark(call: Call, match: re.Match[str]) -> str:
    if call.mutated:
        return f"torch cannot functionalize a result that is an argument: return nothing\n  {_without_return(call)}"
    return "torch functionalizes no views but its own: return a new tensor, and take the (a) out of the schema"


def _rule(call: Call, match: re.Match[str]) -> str:
    return f"correct the rule, or take it away: without one, torch loops\n{_rule_lines(call)}"


def _autocast_rule(call: Call, match: re.Match[str]) -> str:
    return (
        "let autocast give it inputs of one dtype:\n"
        f'  torch.library.register_autocast("{call.name}", "{_backend.device}", torch.float32)\n'
        "torch.float16 or torch.bfloat16, if it is to compute in that"
    )


def _contiguous(call: Call, match: re.Match[str]) -> str:
    names = ", ".join(dict.fromkeys(call.argument_names()))
    if "gradients" in match[0]:
        return "let the backward use the strides of the gradients it gets, or begin with\n  grad = grad.contiguous()"
    first = next((n for n in call.argument_names() if n not in call.mutated), names)
    written = next(iter(call.mutated), None)
    if written:
        return (
            f"let the kernel use strides and offsets ({names}), or compute into a contiguous tensor and end with\n"
            f"  {written}.copy_(result)"
        )
    return f"let the kernel use strides and offsets ({names}), or begin with\n  {first} = {first}.contiguous()"


def _zero(call: Call, match: re.Match[str]) -> str:
    name = next(iter(call.argument_names()), "x")
    return f"begin the kernel with the case of no elements, and launch nothing:\n  if {name}.numel() == 0: return ..."


def _reference(call: Call, match: re.Match[str]) -> str:
    return (
        "register what it computes, in plain operators of PyTorch:\n"
        f'  @torch.library.register_kernel("{call.name}", "cpu")\n'
        f"  def _({_signature(call)}): ...\n"
        "or give check_op(..., reference=function)"
    )


def _kernel(call: Call, match: re.Match[str]) -> str:
    return (
        "one of the two is wrong. The device's kernel is registered by\n"
        f'  torch.library.register_kernel("{call.name}", "{_backend.device}")\n'
        'and the reference the same for "cpu"; if they differ by rounding alone: check_op(..., rtol=..., atol=...)'
    )


_ROWS = [
    _Row("test_schema", r"Argument (\w+) is not defined as mutable but was mutated", _mutation),
    _Row("test_schema", r"Argument (\w+) is not defined to alias output but was aliasing", _alias),
    _Row("test_schema", r"`outputs\[\d+\] is (\w+)", _returns_input),
    _Row("test_schema", r"Outputs (\d+) and (\d+) alias unexpectedly", _outputs_alias),
    _Row("test_autograd_registration", r"requires grad|requires_grad=True", _move_formula),
    _Row("test_gradcheck", r"no gradient formula|no autograd formula was registered", _formula),
    _Row("test_gradcheck", r"Jacobian mismatch|not the CPU reference's", _wrong_formula),
    _Row("test_faketensor", r"UnsupportedOperator", _add_fake),
    _Row("test_faketensor", r"DataDependent|data-dependent|data_ptr", _fake_reads),
    _Row("test_faketensor", r"mismatch|not equal", _correct_fake),
    _Row("test_aot", r"no autograd formula was registered", _formula),
    _Row("test_aot", r"UnsupportedOperator", _add_fake),
    _Row("test_aot", r"alias annotation", _no_alias_mark),
    _Row("test_aot", r"DataDependent|data-dependent|data_ptr|Gradients of the operator are different", _traceable),
    _Row("test_aot", r"SymInt", _symbolic),
    _Row("test_aot", r"Outputs of the operator are different", _pure),
    _Row("test_vmap", r".", _rule),
    _Row("test_autocast", r".", _autocast_rule),
    _Row("test_noncontiguous", r"(?s).*", _contiguous),
    _Row("test_empty", r".", _zero),
    _Row("test_cpu_reference", r"there is no CPU reference", _reference),
    _Row("test_cpu_reference", r"not the CPU reference's", _kernel),
]


def _argument(call: Call, found: str) -> str:
    """Torch's messages call an argument ``self`` by the name ``input``."""
    names = [argument.name for argument in call.op._schema.arguments]
    return "self" if found == "input" and "input" not in names else found


def _annotated(call: Call, name: str, mark: str) -> str:
    """The schema with an argument marked as written to (``!``) or as seen by the result."""
    before, arrow, after = str(call.op._schema).partition(" -> ")
    before = re.sub(rf"Tensor(\S*) {name}\b", rf"Tensor(a{mark})\1 {name}", before)
    if not mark:
        after = re.sub(r"^Tensor\b", "Tensor(a)", after)
    return before + arrow + after


def _without_return(call: Call) -> str:
    return str(call.op._schema).partition(" -> ")[0] + " -> ()"


def _signature(call: Call) -> str:
    """The schema's arguments as those of a Python function."""
    parts, keyword_only = [], False
    for argument in call.op._schema.arguments:
        if argument.kwarg_only and not keyword_only:
            parts.append("*")
            keyword_only = True
        default = f"={argument.default_value!r}" if argument.has_default_value() else ""
        parts.append(argument.name + default)
    return ", ".join(parts)


def _register_autograd(call: Call) -> str:
    return f'torch.library.register_autograd("{call.name}", backward, setup_context=setup_context)'


def _formula_lines(call: Call) -> str:
    names = [argument.name for argument in call.op._schema.arguments]
    results = len(call.op._schema.returns)
    grads = "grad" if results == 1 else ", ".join(f"grad_{i}" for i in range(results))
    gradients = ", ".join(f"grad_of_{name}" for name in names)
    return (
        "  def setup_context(ctx, inputs, output):\n"
        "      ctx.save_for_backward(...)\n"
        f"  def backward(ctx, {grads}):\n"
        f"      return {gradients}  # None where there is none\n"
        f"  {_register_autograd(call)}"
    )


def _fake_lines(call: Call) -> str:
    return (
        f'  @torch.library.register_fake("{call.name}")\n'
        f"  def _({_signature(call)}):\n"
        f"      return {_fake_results(call)}"
    )


def _fake_results(call: Call) -> str:
    try:
        copy = call.detached().copy()
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


def _rule_lines(call: Call) -> str:
    return (
        f'  @torch.library.register_vmap("{call.name}")\n'
        f"  def _(info, in_dims, {_signature(call)}):\n"
        "      ...  # in_dims: where each argument has its batch, None where it has none\n"
        "      return result, out_dims"
    )
