"""docs/dlpack.md: what it shows runs, on either kind of memory."""

import pytest
import torch
from pages import blocks


@pytest.mark.long_after_first
@pytest.mark.parametrize(("kind", "total"), [("unified", "24.0"), ("discrete", "20.0")])
def test_the_pages_program(run_in_process, backend_package, kind, total):
    """Of the array's write the device sees the 9 in the place of 5 where the array is no copy."""
    name = torch.utils.backend_registration._privateuse1_backend_name
    program = "".join(block.content for block in blocks("docs/dlpack.md") if block.language == "python")
    done = run_in_process(
        program.replace("mydevice", name), options=f"kind={kind}", env={f"{name.upper()}_DRIVER": None}
    )
    assert done.stdout.strip() == total
