"""TTIR becomes a unit of the dialect in a process of its own: ``python -m torch_backplane.triton.translate``.

For a driver that takes TTIR and whose compiler takes C: the simulated device runs it (drivers/sim/translator.cpp). The
module is read from stdin. Nothing of Triton and torch is imported.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import traceback
from functools import cache
from pathlib import Path

from backplane_sdk import __version__, source_dir
from torch_backplane.inductor import LIBRARY
from torch_backplane.triton.lowering import Kernel, lower
from torch_backplane.triton.reader import TextError
from torch_backplane.triton.words import Unsupported

_NO_LOG = (
    "device_print and device_assert have no output where the driver compiles TTIR; a target that takes the dialect too "
    "(languages=dialect+ttir of the simulated device) has it"
)


@cache
def sources() -> str:
    """A hash of the lowering, so that a change of it compiles kernels again."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _library() -> str:
    folder = source_dir() / "backend" / "kernels" / "portable" / "dialect"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in ("core.bpc", *LIBRARY))


def letters(kernel: Kernel) -> str:
    """``parameters`` of ``bp_compile_result``."""
    return "".join(
        "p" if kind == "ptr" else "d" if kind == "f64" else "f" if kind[0] in "fb" else "i" for kind in kernel.arguments
    )


def translate(ttir: str, items: int, subgroup: int) -> str:
    """What the driver reads: ``right``, the local bytes, the parameters, and what follows the prelude.

    Or ``wrong``, and why; or ``broken``, and a traceback.
    """
    try:
        kernel = lower(ttir, items, subgroup, is_grid=True)
        if kernel.messages:
            raise Unsupported(f"{kernel.messages[0].location}: {_NO_LOG}")
    except (TextError, Unsupported) as error:
        return f"wrong\n{error}"
    except Exception:
        return f"broken\n{traceback.format_exc()}"
    return f"right {kernel.local_bytes} {letters(kernel) or '-'}\n{_library()}\n{kernel.text}"


def main() -> None:
    """Translate stdin into the file ``--out``."""
    parser = argparse.ArgumentParser(prog="python -m torch_backplane.triton.translate", description=__doc__)
    parser.add_argument("--items", type=int, default=1, help="of a group")
    parser.add_argument("--subgroup", type=int, default=0, help="items that shuffle")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--id", action="store_true", help="write what names this lowering, and translate nothing")
    given = parser.parse_args()
    if given.id:
        text = f"torch_backplane.triton {__version__} {sources()[:16]}"
    else:
        text = translate(sys.stdin.buffer.read().decode(), given.items, given.subgroup)
    given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
