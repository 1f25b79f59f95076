"""What is written in CUDA's place: expressions that work on every accelerator, or one device's name."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A device's name, such as ``mydevice``; None: whatever accelerator the machine has.

    Without a name a text stays a text: ``str(torch.accelerator.current_accelerator())`` is ``"mydevice"``. Where there
    is no accelerator it is ``"None"``, which equals no device's type and which torch refuses as a device, so that
    nothing goes to the CPU silently, and a module that has it as a default is imported everywhere.
    """

    device: str | None = None

    def __post_init__(self) -> None:
        if self.device is not None and (
            not re.fullmatch(r"[a-z_][a-z0-9_]*", self.device) or self.device in ("cuda", "cpu", "meta")
        ):
            raise ValueError(
                f"{self.device!r} is no name of a device to port to: write it as in torch.device, mydevice"
            )

    def current(self, torch: str) -> str:
        """The accelerator of this machine, as an expression; ``torch`` is the program's name for torch."""
        return f"{torch}.accelerator.current_accelerator()"

    def text(self, torch: str) -> str:
        """The device's type as an expression, a text."""
        return f'"{self.device}"' if self.device else f"str({self.current(torch)})"

    def amp_text(self, torch: str, cuda: str = '"cuda"') -> str:
        """As ``text``, for torch.amp, which refuses "None" even when it is disabled.

        Without an accelerator it is CUDA's, as before: torch.amp disables itself then, with a warning. ``cuda`` is how
        that is written.
        """
        return self.text(torch) if self.device else f"str({self.current(torch)} or {cuda})"

    def module(self, torch: str) -> str:
        """The device's module as an expression."""
        return f"{torch}.{self.device}" if self.device else f"{torch}.get_device_module()"

    def module_or_cuda(self, torch: str) -> str:
        """As ``module``; where there is no accelerator CUDA's, for names that work in it without CUDA."""
        return self.module(torch) if self.device else f'{torch}.get_device_module({self.current(torch)} or "cuda")'

    def process_group(self, torch: str, quote: str = '"') -> str:
        """The device's backend of torch.distributed as an expression, a text; the CPU's without an accelerator."""
        if self.device:
            return f'"{self.device}ccl"'
        return f"{torch}.distributed.get_default_backend_for_device({self.current(torch)} or {quote}cpu{quote})"
