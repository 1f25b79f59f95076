"""The checks of :func:`torch_backplane.testing.check_op` on every operator call of an existing test class.

Torch's ``generate_opcheck_tests`` does the work; this passes it our utilities, which support the device, and corrects
its messages of failed tests.
"""

from __future__ import annotations

import functools
import inspect
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.testing._internal.optests import OpCheckError, generate_tests
from torch.utils._pytree import tree_any_only

from torch_backplane import _backend
from torch_backplane.testing.opchecks import UTILITIES
from torch_backplane.testing.opchecks.call import Call, NothingToCheckError
from torch_backplane.testing.opchecks.check import explain

ACCEPT = "PYTORCH_OPCHECK_ACCEPT"
"""Environment variable: 1 adds what fails now to the failures file, and removes what does not."""

SAVE_INPUTS = "PYTORCH_OPCHECK_PRINT_BETTER_REPRO"
"""Environment variable: 1 saves the inputs of a call that fails, for the script that repeats it."""


def generate_checks(
    testcase: type,
    namespaces: str | Sequence[str],
    failures_path: str | os.PathLike[str] | None = None,
    *,
    additional_decorators: dict[str, Sequence[Callable[..., Any]]] | None = None,
    test_utils: Sequence[str] = tuple(UTILITIES),
) -> None:
    """For each test of a class and each utility, add a test that runs the first and checks every operator it calls.

    The new tests are named ``<utility>__<test>``. Known failures are in the failures file, an entry
    ``"status": "xfail"`` for each operator and test. An entry that passes, or whose operator the test does not call, is
    an error: the file only shrinks. An operator with the tag ``pt2_compliant_tag`` may have no entry.

    Args:
        testcase: a ``unittest.TestCase``, or a class of pytest tests.
        namespaces: of the operators that are checked.
        failures_path: the failures file, in torch's format; None: ``failures_dict.json`` beside the test file.
        additional_decorators: name of a new test -> decorators for it.
        test_utils: the utilities.

    Raises:
        ValueError: an unknown utility.
        RuntimeError: the failures file does not exist, or an entry in it is wrong, or a new test's name is taken.
    """
    if unknown := [name for name in test_utils if name not in UTILITIES]:
        raise ValueError(f"test_utils: no utility {', '.join(unknown)}; there are {', '.join(UTILITIES)}")
    path = Path(failures_path or Path(inspect.getfile(testcase)).parent / "failures_dict.json")
    accept = generate_tests.should_update_failures_dict()
    if not path.exists():
        if not accept:
            raise RuntimeError(
                f"the failures file {path} does not exist: run the tests with {ACCEPT}=1, which makes it"
            )
        generate_tests.FailuresDict(str(path), {}).save()
    decorators: Any = {name: list(found) for name, found in (additional_decorators or {}).items()}
    before = set(dir(testcase))
    with _our_utilities():
        generate_tests.generate_opcheck_tests(
            testcase,
            [namespaces] if isinstance(namespaces, str) else list(namespaces),
            str(path),
            decorators,
            list(test_utils),
        )
    for name in set(dir(testcase)) - before:
        setattr(testcase, name, _in_our_mode(getattr(testcase, name)))


def without_checks(reason: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for a test that :func:`generate_checks` is to skip.

    Args:
        reason: for readers of the test.
    """
    decorator: Callable[..., Any] = generate_tests.dontGenerateOpCheckTests(reason)
    return decorator


# One object per file for all classes that share it: each writes the whole file.
_failures: dict[str, Any] = {}


@contextmanager
def _our_utilities() -> Iterator[None]:
    load = generate_tests.FailuresDict.load

    def load_once(path: str, *, create_file: bool = False) -> Any:
        fresh = load(path)
        known = _failures.setdefault(os.path.realpath(path), fresh)
        known.data = fresh.data
        return known

    testers = {name: functools.partial(_test, name) for name in UTILITIES}
    with (
        mock.patch.dict(generate_tests.ALL_TEST_UTILS, testers),
        mock.patch.object(generate_tests.FailuresDict, "load", load_once),
    ):
        yield


def _test(
    utility: str,
    op: torch._ops.OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    copy_inputs: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """A utility with the signature that torch calls it by."""
    if tree_any_only(torch.Tensor, generate_tests.is_abstract, (args, kwargs)):
        return
    call = Call(op, args, kwargs, rtol, atol)
    try:
        UTILITIES[utility](call)
    except NothingToCheckError:
        pass
    except Exception as error:
        raise _CallError(explain(utility, call, error, "a call of this test"), call) from error


class _CallError(OpCheckError):
    def __init__(self, text: str, call: Call) -> None:
        super().__init__(text)
        self.call = call


def _in_our_mode(test: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(test)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with mock.patch.multiple(generate_tests, OpCheckMode=_Mode, generate_repro=_repro):
            return test(*args, **kwargs)

    return wrapped


class _Mode(generate_tests.OpCheckMode):
    """Torch's mode, which also finds entries without a call, and shows the arguments of failed calls."""

    def __exit__(self, kind: type[BaseException] | None = None, *rest: Any) -> Any:
        self.ended_early = kind is not None
        return super().__exit__(kind, *rest)

    def maybe_raise_errors_on_exit(self) -> None:
        for qualname in [] if self.ended_early else self._entries_without_a_call():
            if not generate_tests.should_update_failures_dict():
                raise OpCheckError(
                    f"{self.failures_dict_path} expects {qualname} to fail in {self.test_name}, which does not call "
                    f"it: remove the entry, or run the test with {ACCEPT}=1"
                )
            self.failures_dict.set_status(qualname, self.test_name, "xsuccess")
        for errors in self.seen_ops_to_errors.values():  # torch kept the arguments as they were after the call
            errors[:] = [
                (
                    error,
                    op,
                    *(error.call.inputs if isinstance(error, _CallError) else (args, kwargs)),
                )
                for error, op, args, kwargs in errors
            ]
        try:
            super().maybe_raise_errors_on_exit()
        except OpCheckError as error:
            if error.__cause__ is None:
                raise
            raise OpCheckError(f"{error.__cause__}\n\n{error}{self._command()}") from error.__cause__
        finally:
            data = self.failures_dict.data
            for qualname in [name for name, tests in data.items() if not tests]:
                del data[qualname]

    def _command(self) -> str:
        return "Or run the test alone:\n  python -m pytest -k '{} and {}'".format(*self.test_name.split("."))

    def _entries_without_a_call(self) -> list[str]:
        return [
            qualname
            for qualname in self.failures_dict.data
            if qualname not in self.seen_ops_to_errors
            and self.failures_dict.get_status(qualname, self.test_name) == "xfail"
        ]


def _repro(
    test: str,
    op: torch._ops.OpOverload,
    args: tuple[Any, ...] | None,
    kwargs: dict[str, Any] | None,
    *,
    save_data: bool,
    dry_run: bool = False,
) -> str:
    """A script that repeats a check with check_op. Saved tensors keep their device."""
    if save_data:
        path = Path(tempfile.gettempdir()) / f"check_op_{os.getpid()}_{time.time_ns()}.pt"
        if not dry_run:
            torch.save((args, kwargs), path)
        inputs = (
            '# Without the device: torch.load(..., map_location="cpu"). check_op moves CPU tensors to the device.\n'
            f'args, kwargs = torch.load("{path}")\n'
        )
    else:
        inputs = f"# {SAVE_INPUTS}=1 saves those of the test.\nargs = ()\nkwargs = {{}}\n"
    return (
        f"import torch\nimport {_backend.package}  # and what defines the operator\n"
        "from torch_backplane.testing import check_op\n\n"
        f'{inputs}check_op("{op.name()}", [(args, kwargs)], test_utils="{test}")\n'
    )
