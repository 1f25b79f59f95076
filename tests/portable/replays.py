"""What the tests of replayed graphs share: a compiled function, and a log of its runs."""

import torch

from torch_backplane.inductor import replay


class Log(list):
    """What each call of a compiled graph was: "call", kernel by kernel; "recorded", before it is "replayed"."""

    def since(self):
        """What is new since the last call of this."""
        seen = list(self)
        self.clear()
        return seen


def watched(monkeypatch):
    log = Log()
    capture, run, call = replay.Replayed.capture, replay._Recording.run, replay.Replayed.__call__

    def logs_capture(self, *arguments):
        recording = capture(self, *arguments)
        log.append("recorded")
        return recording

    def logs_run(self, arguments):
        log.append("replayed")
        return run(self, arguments)

    def logs_call(self, arguments):
        before = log.count("replayed")
        result = call(self, arguments)
        if log.count("replayed") == before:
            log.append("call")
        return result

    monkeypatch.setattr(replay.Replayed, "capture", logs_capture)
    monkeypatch.setattr(replay._Recording, "run", logs_run)
    monkeypatch.setattr(replay.Replayed, "__call__", logs_call)
    return log


def graphed(function, **settings):
    return torch.compile(function, mode="reduce-overhead", **settings)


def near(got, expected):
    torch.testing.assert_close(got.detach().cpu(), expected, rtol=1e-4, atol=1e-5)
