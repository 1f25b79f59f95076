"""A driver that copies only whole blocks, and never between two devices: the core stages the rest."""

import pytest

pytestmark = pytest.mark.once


@pytest.mark.long_after_first
@pytest.mark.parametrize("odd_device", [1, 0, -1], ids=["second", "first", "none"])  # the one with smaller blocks
def test_odd_copies_and_copies_between_devices_are_exact(printed, shim, odd_device):
    code = """
    first, second = torch.device(d, 0), torch.device(d, 1)
    cpu = torch.arange(1000, dtype=torch.uint8)
    x = cpu.to(first)
    for begin, end in ((0, 1000), (1, 2), (63, 65), (64, 128), (3, 999), (200, 200)):
        assert torch.equal(x[begin:end].cpu(), cpu[begin:end])
        assert torch.equal(x[begin:end].to(second).cpu(), cpu[begin:end])
        assert torch.equal(x.to(second)[begin:end].to(first).cpu(), cpu[begin:end])
        for source, target in ((first, second), (second, first)):
            z = torch.zeros(1024, dtype=torch.uint8, device=target)
            z[16:16 + end - begin] = x.to(source)[begin:end]
            assert torch.equal(z[16:16 + end - begin].cpu(), cpu[begin:end])
            assert z.count_nonzero().item() == cpu[begin:end].count_nonzero().item()
        y = torch.zeros(1000, dtype=torch.uint8, device=first)
        y[begin:end] = cpu[begin:end]
        y[end:].copy_(x[end:])
        expected = torch.zeros(1000, dtype=torch.uint8)
        expected[begin:] = cpu[begin:]
        assert torch.equal(y.cpu(), expected)
        assert torch.equal(y[begin:end].to(torch.int32).to(second)[::3].cpu(), cpu[begin:end].int()[::3])
    assert x[77].item() == 77
    assert x[::7].clone().fill_(9).sum().item() == 9 * 143
    with torch.no_grad():
        assert torch.equal(torch.sin(x.float()).cpu(), torch.sin(cpu.float()))
    print("exact")
    """
    driver = shim("block_copies", ODD_DEVICE=odd_device)
    assert printed(code, "devices=2", DRIVER=driver).split() == ["exact"]
