"""The worker process: takes questions as JSON lines on its standard input, answers on a pipe, may die at any time.

What it prints goes to a log that the parent reads when it dies: faulthandler's stack of a crash, the C++ library's
last words.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any, TextIO

__all__ = ["STACKS", "main"]

STACKS = signal.SIGUSR1
"""Prints the stacks of all threads into the log: sent before a worker that hangs is killed."""


def main(answers: int) -> None:
    """Serve until the standard input ends.

    Args:
        answers: the file descriptor of the pipe for answers.
    """
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    pipe = os.fdopen(answers, "w", encoding="utf-8")
    os.set_inheritable(answers, False)
    faulthandler.enable(all_threads=True)
    faulthandler.register(STACKS, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    first = json.loads(questions.readline())
    runner = _guarded(pipe, _open, pipe, first)
    for line in questions:
        _guarded(pipe, _serve, pipe, runner, json.loads(line))
    # Not the interpreter's shutdown: what a case left behind could hang in it.
    os._exit(0)


def _watch(parent: int) -> None:
    """End with the run, even if that was killed while a case hangs here."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(2)


def _open(pipe: TextIO, question: dict[str, Any]) -> Any:
    from backplane_tools.conformance.runner import Runner

    runner = Runner(question["device"], question["package"], question["where"])
    _say(pipe, {"ready": runner.about()})
    return runner


def _serve(pipe: TextIO, runner: Any, question: dict[str, Any]) -> None:
    from backplane_tools.conformance.case import Case

    if "list" in question:
        cases = runner.cases(question["list"], question["dtypes"])
        _say(pipe, {"cases": [[case.name, case.dtype] for case in cases]})
        return
    case = Case(*question["run"])
    runner.suite(case.suite)  # its import is not the case's time
    os.ftruncate(2, 0)
    _say(pipe, {"begun": case.id})
    row = runner.run(case, question["seed"]).to_json()
    _say(pipe, {"row": row, "usable": runner.is_usable()})


def _guarded(pipe: TextIO, function: Any, *args: Any) -> Any:
    """Tell the parent what stops the run, and end."""
    from backplane_tools.conformance.errors import ConformanceError

    try:
        return function(*args)
    except ConformanceError as error:
        _say(pipe, {"error": str(error)})
    except Exception:
        import traceback

        _say(pipe, {"error": traceback.format_exc()})
    sys.stderr.flush()
    os._exit(2)


def _say(pipe: TextIO, answer: dict[str, Any]) -> None:
    pipe.write(json.dumps(answer) + "\n")
    pipe.flush()
