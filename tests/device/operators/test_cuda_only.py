"""The list of operators that CUDA has and the CPU does not (docs/operators.md): complete, and as it describes them."""

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
import torch
import torchgen
import yaml

from torch_backplane.ops import registry

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"
DECLARED = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"


@cache
def lines():
    """Of each line of the list its operators' patterns, its state and its text."""
    section = PAGE.read_text(encoding="utf-8").split("## Operators that only CUDA has")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \| (built|composed|refused) \| (.*) \|$", section, re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", operators), state, text) for operators, state, text in cells]


@cache
def rows():
    """State -> the patterns of its operators."""
    found = {}
    for patterns, state, _ in lines():
        found.setdefault(state, []).extend(patterns)
    return found


@pytest.fixture(scope="module")
def cudas():
    """The overloads with a kernel for CUDA and none for the CPU, "mm.dtype_out"; of sparse and nested tensors none."""
    found = []
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for entry in yaml.load(DECLARED.read_text(encoding="utf-8"), loader):
        keys = {key.strip() for keys in entry.get("dispatch") or {} for key in keys.split(",")}
        if "CUDA" in keys and "CPU" not in keys:
            found.append(entry["func"].partition("(")[0])
    return found


def state_of(operator):
    exact = {state for state, patterns in rows().items() if operator in patterns}
    return exact or {state for state, patterns in rows().items() if any(fnmatchcase(operator, p) for p in patterns)}


def test_K04_each_operator_that_only_cuda_has_is_listed_once(cudas):
    assert len(cudas) > 200
    assert {operator: states for operator in cudas if len(states := state_of(operator)) != 1} == {}
    if torch.__version__.startswith("2.13"):  # others have no operator for some lines, and 2.13 for "torch 2.15's ..."
        listed = {p for patterns, _, says in lines() if not re.match(r"torch 2\.\d+'s", says) for p in patterns}
        assert {p for p in listed if not any(fnmatchcase(o, p) for o in cudas)} == set()


@pytest.mark.once
def test_K04_what_is_built_or_composed_has_a_kernel(device, cudas):
    for operator in cudas:
        name = f"aten::{operator}"
        if state_of(operator) == {"built"}:
            assert registry.has_kernel(name, "PrivateUse1"), name
        elif state_of(operator) == {"composed"}:
            has = [registry.has_kernel(name, key) for key in (*registry.COMPOSITE, "PrivateUse1")]
            assert any(has), name


def made_up(argument, device):
    """A value of an argument's type."""
    kind = str(argument.real_type)
    if argument.name == "device":
        return device
    if kind.startswith("Optional["):
        return None
    values = {
        "Tensor": torch.ones(2, 2, device=device),
        "List[Tensor]": [torch.ones(2, 2, device=device)],
        "List[Optional[Tensor]]": [torch.ones(2, 2, device=device)],
        "float": 0.5,
        "bool": False,
        "str": "",
        "Scalar": 1,
        "ScalarType": torch.float32,
    }
    if "bool[" in kind or "List[bool]" in kind:
        return [True] * (argument.N or 1)
    if "List[int]" in kind or "List[SymInt]" in kind:
        return [1] * (argument.N or 1)
    return values.get(kind, 1)


@pytest.mark.once
def test_K04_the_error_of_a_refused_one_says_what_to_use_instead(device, cudas):
    refused = [operator for operator in cudas if state_of(operator) == {"refused"}]
    assert len(refused) > 30
    for operator in refused:
        name, _, overload = operator.partition(".")
        op = getattr(getattr(torch.ops.aten, name), overload or "default")
        positional, named = [], {}
        for argument in op._schema.arguments:
            value = made_up(argument, device)
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        with pytest.raises(NotImplementedError) as raised:
            op(*positional, **named)
        said = str(raised.value)
        assert said.startswith(f"aten::{operator} has no kernel"), said
        assert device.type in said
        assert "torch" in said.rpartition("). ")[2], said
        assert "Write one" not in said
