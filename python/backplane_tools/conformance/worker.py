"""The worker process: a :class:`Runner` whose methods the parent calls. It may die at any time.

What it prints goes to a log that the parent reads when it dies: faulthandler's stack of a crash, the C++ library's
message.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.process import STACKS, questions


def main(pipe: Connection) -> None:
    """Answer each question, the name of a method and its arguments; one that raises ends the process."""
    faulthandler.enable(all_threads=True)
    faulthandler.register(STACKS, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    runner: Any = None
    for method, *arguments in questions(pipe):
        try:
            if method == "open":
                from backplane_tools.conformance.runner import Runner

                runner = Runner(*arguments)
                pipe.send(runner.about())
            else:
                answer = getattr(runner, method)(*arguments)
                if method == "prepare":
                    os.ftruncate(2, 0)  # the log is the next case's
                pipe.send(answer)
        except Exception as error:
            pipe.send(error if isinstance(error, ConformanceError) else ConformanceError(traceback.format_exc()))
            sys.stderr.flush()
            os._exit(2)
    # Without the interpreter's shutdown, in which what a case left behind could hang.
    os._exit(0)


def _watch(parent: int) -> None:
    """End with the run, even if that was killed while a case hangs here."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(2)
