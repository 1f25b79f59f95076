"""docs/custom-ops.md: its program runs, and every row of its table of mistakes says what it promises."""

import re
import warnings

import pytest
import torch
from pages import code, table_rows
from torch import Tensor

pytestmark = pytest.mark.usefixtures("backend_package")
PAGE = "docs/custom-ops.md"


def test_the_pages_program():
    from torch_backplane import ops

    program = "\n".join(code(PAGE))
    try:
        with ops.strict():
            exec(compile(program, PAGE, "exec"), {"__name__": "page"})
    finally:
        for name in ("leaky_scale", "halve", "ramp", "sort_"):
            ops.get(f"vendor::{name}").destroy()


def f(x: Tensor) -> Tensor:
    return x + 1


def of_number(n: int) -> Tensor:
    return torch.ones(n)


def of_list(x: list[Tensor]) -> Tensor:
    return x[0] + 1


def writes(x: Tensor) -> None:
    x.zero_()


def backward(ctx, gradient):
    return gradient


def mistakes():
    """What the table's first column describes, in its order."""
    from torch_backplane import ops

    def define(function=f, name="bp_page::f", **options):
        return ops.custom_op(name, function, **{"mutates_args": (), **options})

    def after(first, **options):
        """Something done to a sound operator, which is destroyed after."""

        def act():
            with define(**options) as op:
                first(op)

        return act

    def twice(call):
        def act(op):
            call(op)
            call(op)

        return act

    def call_destroyed(op):
        op.destroy()
        op(torch.ones(1))

    def again(op):
        define(lambda x: x, schema="(Tensor x) -> Tensor").destroy()

    return [
        lambda: define(name="f"),
        lambda: define(name="aten::f"),
        lambda: define(name="my.lib::f"),
        lambda: define(name="quantized::add"),
        after(again),
        lambda: ops.custom_op("bp_page::other", mutates_args=())(f),
        lambda: define(lambda x: x),
        lambda: define(schema="f(Tensor x) -> Tensor"),
        lambda: define(schema="(int64_t n) -> Tensor"),
        lambda: define(schema="(Tensor x -> Tensor"),
        lambda: define(writes, schema="(Tensor(a!) x) -> ()"),
        after(lambda op: op.register_fake(lambda y: y)),
        lambda: define(strides="fixed"),
        lambda: define(device_types="mydevise"),
        after(lambda op: op.register_kernel("PrivateUse1", f)),
        after(lambda op: op.register_kernel("mydevice:0", f)),
        lambda: define(of_number),
        after(lambda op: op.register_kernel(None, lambda x: x)),
        lambda: ops.get("aten::selu").register_kernel(None, lambda self: self),
        lambda: ops.get("aten::gelu").register_autograd(backward),
        after(lambda op: op.register_autograd(backward), function=writes, mutates_args={"x"}),
        after(lambda op: op.register_autograd(backward, setup_context=lambda ctx, x, y: None)),
        after(lambda op: op.register_autograd(backward, output_differentiability=[True, False])),
        after(twice(lambda op: op.register_fake(f, allow_override=False))),
        after(lambda op: [op.register_autocast(dtype=dtype) for dtype in (torch.float16, torch.bfloat16)]),
        after(lambda op: op.register_autocast(), function=writes, mutates_args={"x"}),
        after(lambda op: op(torch.ones(1))),
        after(lambda op: op([]), function=of_list),
        after(call_destroyed),
        lambda: ops.get("bp_page::nothing"),
        lambda: define(ops.host_kernel(f, mutates_args=["x"])),
    ]


MISTAKES = [row for row in table_rows(PAGE) if len(row) == 3 and re.fullmatch(r"\w+(Error|Warning)", row[1])]


def test_the_table_is_whole():
    assert len(MISTAKES) == len(mistakes())


@pytest.mark.parametrize("row", range(len(MISTAKES)), ids=[row[0][:40] for row in MISTAKES])
def test_every_mistake_is_an_error_that_says_so(row):
    _, error, text = MISTAKES[row]
    make = mistakes()[row]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Exception, match=re.escape(text)) as found:
            make()
    assert found.type.__name__ == error
    assert [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("bp_page::")] == []
