"""<DEVICE>_VISIBLE_DEVICES, with the rules of CUDA_VISIBLE_DEVICES."""

import pytest

pytestmark = pytest.mark.once


@pytest.fixture
def uuids(run_on, name):
    """``uuids(*values)``: for each value of the variable, the uuids of the devices that are visible."""

    def ask(*values):
        code = f"""
            import os, torch
            m = torch.{name}
            for value in {values}:
                os.environ["{name.upper()}_VISIBLE_DEVICES"] = value
                print([m.get_device_properties(i).uuid for i in range(m.device_count())])
        """
        return [eval(line) for line in run_on(code, "devices=4", VISIBLE_DEVICES=None).stdout.splitlines()]

    return ask


def test_indices_and_uuids_select_and_order(uuids):
    (every,) = uuids("0,1,2,3")
    assert len(set(every)) == 4
    assert uuids("2,0", every[3]) == [[every[2], every[0]], [every[3]]]


def test_the_list_ends_at_what_names_no_device(uuids):
    assert [len(visible) for visible in uuids("-1", "1,-1,2", "0,9,1", "1,1")] == [0, 1, 1, 0]


def test_a_visible_device_is_used_under_its_new_number(run_on, name):
    code = f"""
        import torch
        x = torch.ones(3, device="{name}:0")
        print(x.device, x.sum().item(), torch.{name}.device_count())
        try:
            torch.ones(1, device="{name}:1")
        except RuntimeError as error:
            print("refused")
    """
    assert run_on(code, "devices=4", VISIBLE_DEVICES="3").stdout == f"{name}:0 3.0 1\nrefused\n"


def test_the_list_counts_until_the_driver_is_opened(run_on, name):
    """Launchers set it after the import, and after the first queries, as for torch.cuda."""
    prefix = name.upper()
    code = f"""
        import os, torch
        m = torch.{name}
        uuids = [m.get_device_properties(i).uuid for i in range(m.device_count())]
        print(m.device_count(), torch.accelerator.device_count())
        os.environ["{prefix}_VISIBLE_DEVICES"] = "2"
        print(m.device_count(), torch.accelerator.device_count(), m.get_device_properties(0).uuid == uuids[2])
        os.environ["{prefix}_VISIBLE_DEVICES"] = ""
        print(m.device_count(), m.is_available())
        try:
            torch.ones(1, device="{name}")
        except RuntimeError as error:
            print("hidden" in str(error))
        os.environ["{prefix}_VISIBLE_DEVICES"] = "3,1"
        print(m.device_count(), torch.ones(2, device="{name}:1").sum().item())
        os.environ["{prefix}_VISIBLE_DEVICES"] = "0"
        print(m.device_count(), [m.get_device_properties(i).uuid for i in range(2)] == [uuids[3], uuids[1]])
    """
    out = run_on(code, "devices=4", VISIBLE_DEVICES=None).stdout
    assert out.splitlines() == ["4 4", "1 1 True", "0 False", "True", "2 2.0", "2 True"]
