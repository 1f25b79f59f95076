"""docs/graphs.md: what it shows runs, on either kind of memory."""

import pytest
import torch
from pages import blocks


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_the_pages_program(run_in_process, backend_package, kind):
    name = torch.utils.backend_registration._privateuse1_backend_name
    program = "".join(block.content for block in blocks("docs/graphs.md") if block.language == "python")
    variables = {f"{name.upper()}_DRIVER": None, f"{name.upper()}_KERNELS": "wait"}
    done = run_in_process(program.replace("mydevice", name), options=f"kind={kind}", env=variables)
    assert done.stdout.strip() == "True"
