"""A program as a Python file that needs torch and the device, and nothing of this package."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from fuzz import helpers, values
from fuzz.groups import HOST
from fuzz.machine import Shortage
from fuzz.reference import Expected, Reference, flatten

_SIDE = '''
def leaves(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, (tuple, list)) else []


class Side:
    """The CPU, or the device: its places, its streams, and what waits for what."""

    def __init__(self, name):
        self.device = name != "cpu"
        self.place = {0: "cpu", 1: "cpu", "host": "cpu", "pinned": "cpu"}
        if self.device:
            self.module = torch.get_device_module(name)
            self.place = {0: f"{name}:0", 1: f"{name}:1", "host": "cpu", "pinned": "pinned"}
            self.streams = {(i, 0): self.module.default_stream(i) for i in (0, 1)}
            self.streams |= {(i, k): self.module.Stream(i, priority=1 - k) for i in (0, 1) for k in (1, 2)}

    def on(self, stream):
        return self.module.stream(self.streams[stream]) if self.device and stream else nullcontext()

    def wait(self, waiter, before, how):
        if not self.device:
            return
        if waiter is None or how == "host":
            self.streams[before].synchronize()
        elif how == "event":
            self.streams[waiter].wait_event(self.streams[before].record_event())
        else:
            self.streams[waiter].wait_stream(self.streams[before])

    def record(self, tensor, stream):
        if self.device:
            tensor.record_stream(self.streams[stream])

    def synchronize(self):
        if self.device:
            for index in (0, 1):
                self.module.synchronize(index)
'''

_MAIN = """
def look(side, names):
    found = {}
    for name in names:
        tensor = globals().get(name)
        if isinstance(tensor, torch.Tensor):
            held = tensor.detach().cpu().resolve_conj().resolve_neg()
            found[name] = (held.dtype, tuple(tensor.shape), tensor.stride(), held.tolist())
    return found


sides = [Side("cpu"), Side("@DEVICE@")]
answers = []
for side in sides:
    for name in NAMES:
        globals().pop(name, None)
    program(side)
    side.synchronize()
    answers.append(look(side, NAMES))
for name in NAMES:
    cpu, device = (answer.get(name) for answer in answers)
    if repr(cpu) != repr(device):
        print(f"{name}\\n  on the CPU    {cpu}\\n  on the device {device}")
"""


def render(program: Mapping[str, Any], title: str, device: str, environment: Mapping[str, str]) -> str:
    """The file's text. Runs the program on the CPU, for what waits for what."""
    reference = Reference()
    expected = reference.run(program)
    body: list[str] = []
    names = sorted({name for _, step in flatten(program) for name in step.get("out", ())})
    declare = f"global {', '.join(names)}" if names else "pass"
    numbers = iter(range(len(expected)))
    thread_before: int | None = None
    for thread, step in flatten(program):
        number = next(numbers)
        if thread != thread_before:
            if thread is None:
                body += _join(thread_before)
            else:
                if thread_before is None:
                    body.append("side.synchronize()")
                body += [f"def thread_{thread}():", f"    {declare}"]
            thread_before = thread
        indent = "" if thread is None else "    "
        body += [indent + line for line in _step(number, step, expected[number])]
    if thread_before is not None:
        body += _join(thread_before)
    text = "\n".join(f"    {line}" for line in body)
    used = [name for name in vars(helpers) if f"{name}(" in text or (name == "pattern" and "make(" in text)]
    functions = [
        inspect.getsource(getattr(helpers, name)) for name in used if inspect.isfunction(getattr(helpers, name))
    ]
    if "Shortage(" in text:
        functions.append(re.sub(r": (Any|str|int|object)\b| -> None", "", inspect.getsource(Shortage)))
    settings = " ".join(f'{key}="{value}"' for key, value in environment.items())
    head = f'"""{title}\n\n{settings} python <this file>\n"""\n'
    imports = "import threading\nfrom contextlib import nullcontext\n\nimport torch\n\n"
    body_text = f"def program(side):\n    {declare}\n    place = side.place\n{text}\n"
    names_text = f"NAMES = {names!r}\n"
    main = _MAIN.replace("@DEVICE@", device)
    return "\n".join([head, imports, *functions, _SIDE, "", body_text, "", names_text, main])


def _join(last: int | None) -> list[str]:
    count = (last or 0) + 1
    listed = ", ".join(f"thread_{number}" for number in range(count))
    return [
        f"workers = [threading.Thread(target=work) for work in ({listed},)]",
        "[worker.start() for worker in workers]",
        "[worker.join() for worker in workers]",
        "side.synchronize()",
    ]


def _step(number: int, step: Mapping[str, Any], expected: Expected) -> list[str]:
    if expected.skipped:
        return []
    if "drop" in step:
        return [f"del {step['drop']}"]
    if "sync" in step:
        what = {
            "device": f"side.module.synchronize({step['on']})",
            "stream": f"side.streams[{(step['on'], step['stream'])}].synchronize()",
            "query": f"side.streams[{(step['on'], step['stream'])}].record_event().query()",
            "empty_cache": "side.module.empty_cache()",
        }[step["sync"]]
        return [f"if side.device: {what}"]
    lines = []
    for waiter, before in expected.waits:
        lines.append(f"side.wait({None if waiter == HOST else waiter}, {before}, {step['wait']!r})")
    lines += [f"side.record({name}, {stream})" for name, stream in expected.records]
    out, call = step["out"], values.call(step)
    main = None if expected.streams[0] == HOST else expected.streams[0]
    if expected.error is None and len(out) == 1 and len(expected.metas) == 1:
        call = f"{out[0]} = {call}"
    elif expected.error is None and out and expected.metas:
        taken = ", ".join(out[: len(expected.metas)]) + ("," if len(expected.metas) == 1 else "")
        call = (
            f"{taken} = leaves({call})[:{len(out)}]" if len(out) < len(expected.metas) else f"{taken} = leaves({call})"
        )
    body = [f"with side.on({main}):"]
    if "oom" in step:
        body += [
            "    if side.device:",
            "        try:",
            f"            with Shortage(side.module, place[{main[0] if main else 0}], {step['oom']}):",
            f"                {values.call(step)}",
            "        except torch.OutOfMemoryError as error:",
            f"            print('step {number}: memory has run out')",
        ]
    if expected.error is not None:
        body += [
            f"    if {'side.device' if 'expect' in step else 'True'}:",
            "        try:",
            f"            {call}",
            f"            print('step {number} on', place[0], 'was accepted; right is: {expected.error}')",
            "        except Exception as error:",
            f"            print('step {number} on', place[0], 'raised', type(error).__name__, str(error)[:200])",
        ]
    else:
        body.append(f"    {call}")
    return lines + body
