"""A copy or a fill for which the driver has no memory is retried once, after the caches were freed."""

import pytest

pytestmark = pytest.mark.once

CODE = """
refusals, freed = (ctypes.c_int32.in_dll(driver, name) for name in ("refusals", "freed"))
x, host = torch.arange(64.0, device=d), torch.arange(64.0) + 1
pinned = host.pin_memory()
y = torch.empty(64, device=d)
works = dict(
    up=lambda: y.copy_(host),
    down=lambda: x.cpu(),
    across=lambda: y.copy_(x),
    pinned=lambda: y.copy_(pinned, non_blocking=True),
    fill=lambda: y.fill_(3.0),
    zero=lambda: y.zero_(),
    between=lambda: x.to(d + ":1"),
)
want = {key: work().cpu() for key, work in works.items()}
for key, work in works.items():
    torch.empty(1 << 22, device=d)  # in the cache when the work is refused
    before = freed.value
    refusals.value = 1
    assert torch.equal(work().cpu(), want[key]), key
    assert refusals.value == 0, key
    assert freed.value > before, key
    refusals.value = 2
    try:
        work()
    except torch.OutOfMemoryError as error:
        assert "OUT_OF_MEMORY" in str(error), error
    else:
        raise AssertionError(key)
    assert refusals.value == 0, key
    assert torch.equal(work().cpu(), want[key]), key  # not sticky
print(len(works))
"""


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_work_without_memory_is_retried_once(printed, kind):
    assert printed(CODE, f"kind={kind},stream=async,devices=2", shim_name="tight_work") == "7\n"
