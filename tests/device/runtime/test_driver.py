"""torch_backplane.driver: what was loaded, and the explicit shutdown."""

from torch_backplane import driver
from torch_backplane.testing import capabilities


def test_the_account_of_the_driver(run_on, name, backend_package):
    assert driver.info().capabilities == capabilities()
    assert driver.info().refusal == ""
    code = f"""
        import {backend_package.__name__}
        from torch_backplane import driver
        info = driver.info()
        print(info.path.split("/")[-1], info.options, info.shims)
    """
    assert run_on(code, "devices=1").stdout.strip() == f"lib{name}_driver.so devices=1 ()"


def test_close_gives_everything_back_and_ends_use(run_in_process, name):
    code = f"""
        import torch
        from torch_backplane import driver
        x = torch.ones(1000, device="{name}") + 1
        p = torch.ones(10).pin_memory()
        e = torch.{name}.Event()
        e.record()
        kept = torch.ones(5, device="{name}")
        print(x.sum().item())
        del x, p
        driver.close()
        for use in (lambda: torch.ones(1, device="{name}"), torch.{name}.init):
            try:
                use()
            except RuntimeError as error:
                print("closed" in str(error))
        del kept, e
        driver.close()
        print(torch.ones(2).sum().item())
    """
    done = run_in_process(code)
    assert done.stdout.split() == ["2000.0", "True", "True", "2.0"]
    assert done.stderr == ""
