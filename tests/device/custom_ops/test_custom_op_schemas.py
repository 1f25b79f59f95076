"""Schemas of a vendor's operators: inferred from a function or written by hand, and why others are refused."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._library import utils
from torch._library.infer_schema import SUPPORTED_PARAM_TYPES, tuple_to_list
from torch.library import infer_schema
from torchgen.model import FunctionSchema

pytestmark = pytest.mark.once

NAMESPACE = "bp_test_schemas"


def annotated(annotation):
    """A function with one parameter ``x`` of that type."""

    def function(x) -> None: ...

    function.__annotations__["x"] = annotation
    return function


def test_C01_annotations_may_be_text(ops):
    def function(x: "Tensor", sizes: "list[int]", device: "torch.device") -> "Tensor": ...

    assert infer_schema(function, mutates_args=()) == "(Tensor x, SymInt[] sizes, Device device) -> Tensor"
    assert str(ops.custom("text", function)._opoverload._schema).endswith(
        "text(Tensor x, SymInt[] sizes, Device device) -> Tensor"
    )


def keywords(x: Tensor, *, scale: float, size: int = 2) -> Tensor: ...
def nothing() -> None: ...
def pair(x: Tensor) -> tuple[Tensor, int]: ...
def single(x: Tensor) -> tuple[Tensor]: ...
def writes(x: Tensor, n: int, maybe: Tensor | None, several: list[Tensor]) -> None: ...


@pytest.mark.parametrize(
    ("function", "mutates_args", "schema"),
    [
        (keywords, (), "(Tensor x, *, float scale, SymInt size=2) -> Tensor"),
        (nothing, (), "() -> ()"),
        (pair, (), "(Tensor x) -> (Tensor, SymInt)"),
        (single, (), "(Tensor x) -> ((Tensor))"),
        (writes, ["x"], "(Tensor(a0!) x, SymInt n, Tensor? maybe, Tensor[] several) -> ()"),
        (writes, ["maybe"], "(Tensor x, SymInt n, Tensor(a2!)? maybe, Tensor[] several) -> ()"),
        (writes, ["several"], "(Tensor x, SymInt n, Tensor? maybe, Tensor(a3!)[] several) -> ()"),
        (writes, "unknown", "(Tensor(a0!) x, SymInt n, Tensor(a2!)? maybe, Tensor(a3!)[] several) -> ()"),
    ],
)
def test_C02_C03_keywords_results_and_written_arguments_are_inferred(function, mutates_args, schema):
    assert infer_schema(function, mutates_args=mutates_args) == schema


def varargs(x: Tensor, *rest: int) -> Tensor: ...
def varkwargs(x: Tensor, **rest: int) -> Tensor: ...
def positional_only(x: Tensor, /) -> Tensor: ...
def no_annotation(x) -> Tensor: ...
def no_return(x: Tensor): ...
def variadic_return(x: Tensor) -> tuple[Tensor, ...]: ...


@pytest.mark.parametrize(
    ("function", "mutates_args", "reason"),
    [
        (writes, ["n"], "only Tensors or collections"),
        (writes, ["typo"], "not found in"),
        (writes, "x", "the string 'unknown'"),
        (varargs, (), "varargs"),
        (varkwargs, (), "varkwargs"),
        (positional_only, (), "positional-only"),
        (no_annotation, (), "x must have a type annotation"),
        (no_return, (), "No return type annotation"),
        (variadic_return, (), "Return has unsupported type"),
    ],
)
def test_C03_C05_a_function_that_has_no_schema_is_refused(function, mutates_args, reason):
    with pytest.raises(ValueError, match=reason):
        infer_schema(function, mutates_args=mutates_args)


@pytest.mark.parametrize("annotation", [list[int | None], Callable, dict[str, int], object, tuple[int, int]])
def test_C05_an_unsupported_type_is_refused_with_the_list_of_valid_ones(annotation):
    with pytest.raises(ValueError, match="unsupported type") as caught:
        infer_schema(annotated(annotation), mutates_args=())
    valid = str(caught.value).partition("The valid types are: ")[2]
    assert all(str(known) in valid for known in (Tensor, int, torch.dtype))


def test_C06_a_tuple_suggests_the_list_that_is_supported():
    assert tuple_to_list(tuple[int, int]) in SUPPORTED_PARAM_TYPES
    with pytest.raises(ValueError, match=r"For example, list\[int\]"):
        infer_schema(annotated(tuple[int, int]), mutates_args=())
    with pytest.raises(ValueError, match="try to use List instead") as caught:
        infer_schema(annotated(tuple[int, float]), mutates_args=())
    assert "For example" not in str(caught.value)


def test_C07_a_given_schema_is_used_and_must_agree_with_mutates_args(ops):
    schema = "(Tensor(a!) x, int n=3, *, str? s) -> ()"
    op = ops.custom("given", lambda x, n, *, s: None, schema=schema, mutates_args=("x",))
    assert str(op._opoverload._schema) == f"bp_test_schemas::given{schema}"
    with pytest.raises(ValueError, match=r"The schema suggests that the op mutates \{'x'\}"):
        ops.custom("hidden", lambda x: None, schema="(Tensor(a!) x) -> ()", mutates_args=())
    with pytest.raises(ValueError, match="The schema suggests that the op mutates set"):
        ops.custom("claimed", lambda x: None, schema="(Tensor x) -> ()", mutates_args=("x",))


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ("f(int64_t x) -> Tensor", "Use `SymInt` or `int` instead of `int64_t`"),
        ("f(double x) -> Tensor", "Use `float` instead of `double`"),
        ("f(IntArrayRef x) -> Tensor", "unknown type specifier"),
        ("f(Tensor x) -> at::Tensor", "unknown type specifier"),
        ("f(Tensor x", r"expected \) but found 'eof'"),
    ],
)
def test_C08_wrong_schema_text_is_refused_with_a_hint(ops, schema, hint):
    with pytest.raises(RuntimeError, match=hint):
        ops.library.define(schema)
    with pytest.raises(ValueError, match="expected schema to look like"):  # which has no name
        torch.library.define("bp_test_schemas::f", "f(Tensor x) -> Tensor", lib=ops.library)
    assert not hasattr(torch.ops.bp_test_schemas, "f")


def test_C12_keyword_only_tensors_are_refused(ops):
    with pytest.raises(NotImplementedError, match="custom_op with kwarg-only Tensor args"):
        ops.custom("keyword", lambda *, a: a.clone(), schema="(*, Tensor a) -> Tensor")
    ops.define("defined(Tensor x, *, Tensor a) -> Tensor")
    with pytest.raises(NotImplementedError, match="register_autograd with kwarg-only Tensor args"):
        torch.library.register_autograd("bp_test_schemas::defined", lambda ctx, grad: grad)
    with pytest.raises(NotImplementedError, match="register_vmap with kwarg-only Tensor args"):
        torch.library.register_vmap("bp_test_schemas::defined", lambda info, dims, x: (x, 0))


@pytest.mark.parametrize("form", [str, FunctionSchema.parse, torch._C.parse_schema])
def test_C13_predicates_classify_schemas(form):
    functional = utils.is_functional_schema
    assert functional(form("f(Tensor x) -> Tensor"))
    assert functional(form("f(int n) -> (Tensor, int)"))
    assert functional(form("f(Tensor(a) x) -> Tensor(a)"), allow_valid_view=True)
    for other in ("f(Tensor(a!) x) -> ()", "f(Tensor(a) x) -> Tensor(a)", "f(Tensor x) -> ()"):
        assert not functional(form(other)), other


def test_C13_predicates_classify_list_types():
    for names, answers in {
        "Tensor Tensor?": (False, True),
        "Tensor[] Tensor?[] Tensor[]?": (True, False),
        "int[]": (False, False),
    }.items():
        for name in names.split():
            (argument,) = torch._C.parse_schema(f"f({name} x) -> ()").arguments
            found = utils.is_tensorlist_like_type(argument.type), utils.is_tensor_like_type(argument.type)
            assert found == answers, name


def test_C15_a_second_definition_is_refused_with_both_places(ops):
    ops.define("twice(Tensor x) -> Tensor")
    with (
        torch.library._scoped_library("bp_test_schemas", "FRAGMENT") as second,
        pytest.raises(RuntimeError, match="the same name and overload name multiple times") as caught,
    ):
        second.define("twice(Tensor x) -> Tensor")
    text = str(caught.value)
    assert "Duplicate registration: registered at" in text
    assert "own_operators.py:" in text.partition("Original registration:")[2]


def test_C15_custom_op_replaces_the_earlier_one(ops, device):
    def first(x: Tensor) -> Tensor:
        return x + 1

    def second(x: Tensor, n: int) -> Tensor:
        return x + n

    ops.custom("replaced", first)
    x = torch.zeros(2, device=device)
    assert ops.replaced(x).tolist() == [1, 1]
    ops.custom("replaced", second)
    assert ops.replaced(x, 5).tolist() == [5, 5]


@pytest.mark.parametrize("name", ["foo", "a::b::c"])
def test_C20_a_name_that_is_not_namespace_and_name_is_refused(name):
    for register in (
        lambda: torch.library.define(name, "(Tensor x) -> Tensor"),
        lambda: torch.library.impl(name, "cpu", torch.sin),
        lambda: torch.library.register_fake(name, torch.sin),
        lambda: torch.library.register_autograd(name, torch.sin),
    ):
        with pytest.raises(ValueError, match=f'of the form "namespace::name", but got {name}'):
            register()
