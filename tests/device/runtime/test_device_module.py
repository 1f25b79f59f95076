"""torch.<device>: complete against torch.cuda, typed, documented; devices, random numbers, typed storages."""

import dataclasses
import inspect
import json
import typing

import pytest
import torch

from torch_backplane import _backend
from torch_backplane.device.unsupported import PRIVATE, UNSUPPORTED


def public(module):
    """The module's functions and classes, with those of its parts."""
    for part in (module, module.amp, module.memory, module.random, module.streams):
        for name in part.__all__:
            value = getattr(part, name)
            if callable(value) and getattr(value, "__module__", "").startswith("torch_backplane"):
                yield name, value


# ---- completeness ----------------------------------------------------------------------------------------------------


def both(part, device_module):
    """A part of torch.cuda and the device module's."""
    return (getattr(torch.cuda, part), getattr(device_module, part)) if part else (torch.cuda, device_module)


@pytest.mark.parametrize("part", ["", "memory", "random", "amp"])
def test_every_name_of_torch_cuda_is_there_or_left_out_with_a_reason(device_module, part):
    theirs, ours = both(part, device_module)
    assert [name for name in theirs.__all__ if not hasattr(ours, name) and name not in UNSUPPORTED] == []


@pytest.mark.parametrize("part", ["", "memory", "random", "streams", "graphs"])
def test_every_private_function_of_torch_cuda_is_there_or_left_out_with_a_reason(device_module, part):
    theirs, ours = both(part, device_module)
    private = {
        name
        for name, value in vars(theirs).items()
        if name.startswith("_") and not name.startswith("__") and (inspect.isfunction(value) or inspect.isclass(value))
        if value.__module__ == theirs.__name__
    }
    missing = {name for name in private if not hasattr(ours, name) and not hasattr(device_module, name)}
    assert missing - set(PRIVATE) == set()
    assert not [name for name in PRIVATE if hasattr(device_module, name) or hasattr(device_module.memory, name)]


# Names of torch.cuda that torch 2.11 does not have yet: the second from 2.13 on, the others later.
NEWER_CUDA_NAMES = {"current_solver_handle", "export_dot", "export_graph_data", "graph_annotations"}


def test_what_is_left_out_exists_in_torch_cuda_and_raises_with_the_reason(device_module):
    for name, reason in UNSUPPORTED.items():
        assert name in torch.cuda.__all__ or name in NEWER_CUDA_NAMES
        with pytest.raises(AttributeError, match=name) as caught:
            getattr(device_module, name)
        assert reason in str(caught.value)


def test_everything_public_is_typed_and_documented(device_module):
    for name, value in public(device_module):
        assert inspect.getdoc(value), name
        if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
            continue  # its methods are generated
        functions = [value] if inspect.isfunction(value) else [f for f in vars(value).values() if inspect.isfunction(f)]
        for function in functions:
            hints = typing.get_type_hints(function)
            parameters = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
            assert all(p in hints for p in parameters), (name, function)
            assert "return" in hints, (name, function)


def test_what_torch_asks_of_a_device_module_is_there(device_module):
    names = """
    _is_in_bad_fork manual_seed_all get_amp_supported_dtype is_initialized current_device _utils _lazy_init
    _exchange_device _maybe_exchange_device _set_stream_by_id _get_rng_state_offset _set_rng_state_offset
    _get_generator _initialized
    """
    assert [name for name in names.split() if not hasattr(device_module, name)] == []


# ---- devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.requires("multi_device")
def test_E01_E04_the_device_context_and_set_device_decide_where_memory_lands(device_module, name):
    def current():
        index = torch.empty(1, device=name).device.index
        assert index == device_module.current_device()
        return index

    with device_module.device(1):
        with device_module.device(-1), device_module.device(None):
            assert current() == 1
        assert current() == 1
    assert current() == 0
    for device, index in ((f"{name}:1", 1), (-1, 1), (torch.device(name, 0), 0)):
        device_module.set_device(device)
        assert current() == index


@pytest.mark.requires("multi_device")
def test_device_of_follows_an_object(device_module, name):
    x = torch.empty(1, device=f"{name}:1")
    with device_module.device_of(x):
        assert device_module.current_device() == 1
    with device_module.device_of(x.untyped_storage()):
        assert device_module.current_device() == 1
    with device_module.device_of(torch.empty(1)):
        assert device_module.current_device() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda m, n: torch.empty(1, device=f"{n}:9"),
        lambda m, n: torch.empty(1, device=f"{n}:127"),
        lambda m, n: m.set_device(9),
        lambda m, n: m.get_device_properties(9),
        lambda m, n: m.synchronize(9),
        lambda m, n: m.memory_stats(9),
        lambda m, n: m.current_stream(9),
        lambda m, n: m.device(99).__enter__(),
        lambda m, n: m.set_device(1000),
    ],
)
def test_E05_an_index_out_of_range_is_refused(device_module, name, wrong):
    torch.empty(1, device=name)
    with pytest.raises(RuntimeError, match=r"(?i)invalid device|device index"):
        wrong(device_module, name)
    assert device_module.current_device() == 0


@pytest.mark.parametrize("wrong", ["cpu", torch.device("cpu"), "meta"])
def test_another_device_type_is_refused(device_module, name, wrong):
    with pytest.raises(ValueError, match=f"expected a {name} device"):
        device_module.get_device_name(wrong)


def test_properties_describe_the_device(device_module, name):
    properties = device_module.get_device_properties(f"{name}:0")
    assert properties.name == device_module.get_device_name(0)
    assert (properties.major, properties.minor) == device_module.get_device_capability()
    assert properties.total_memory == device_module.mem_get_info(0)[1] > 0
    assert len(properties.uuid) == 36
    assert bytes(properties.uuid.bytes).hex() == properties.uuid.replace("-", "")
    assert properties.alignment >= 512
    assert properties.name in repr(properties)
    assert all(isinstance(dtype, torch.dtype) for dtype in properties.dtypes)


@pytest.mark.requires("peer", "multi_device")
def test_peer_access_is_reported(device_module):
    assert not device_module.can_device_access_peer(0, 0)
    assert device_module.can_device_access_peer(0, 1)


def test_get_device_module_finds_it(device_module, name):
    assert torch.get_device_module(name) is device_module
    assert torch.get_device_module() is device_module


@pytest.mark.once
def test_the_account_as_json_has_what_the_text_has(run_in_process, backend_package, device_module, name):
    def account(**env):
        code = f"import sys\nfrom torch_backplane.account import main\nsys.exit(main({package!r}, ['--json']))"
        done = run_in_process(code, check=False, env=env)
        return done.returncode, json.loads(done.stdout)

    package = backend_package.__name__
    status, found = account()
    assert status == 0
    assert (found["package"], found["device"], found["reason"]) == (package, name, "")
    assert [one["index"] for one in found["devices"]] == list(range(device_module.device_count()))
    assert found["devices"][0]["name"] == device_module.get_device_name(0)
    assert found["devices"][0]["uuid"] == device_module.get_device_properties(0).uuid
    assert "streams" in found["driver"]["offers"]
    status, found = account(**{f"{name.upper()}_VISIBLE_DEVICES": "7"})
    assert (status, found["devices"]) == (1, [])
    assert found["reason"]


@pytest.mark.requires("host_exec")
def test_sleep_keeps_the_current_stream_busy_and_no_other(device_module, device):
    stream = device_module.Stream()
    clock = device_module.get_device_properties().clock_rate
    with stream:
        device_module._sleep(int(0.2 * 1000 * clock) if clock else 200_000_000)
        event = torch.Event(device)
        event.record()
    device_module.current_stream().synchronize()
    busy = not event.query()
    event.synchronize()
    assert event.query()
    assert busy or "inline" in str(_backend.C.driver.info()["options"])
    with pytest.raises(ValueError, match="number of cycles"):
        device_module._sleep(-1)


# ---- random numbers, amp, storages -----------------------------------------------------------------------------------


def test_E36_E37_seeds_reach_the_generator_of_each_device(device_module):
    generators = device_module.default_generators
    assert [g.device.index for g in generators] == list(range(device_module.device_count()))
    torch.manual_seed(5)
    assert [g.initial_seed() for g in generators] == [5] * len(generators)
    device_module.manual_seed(6)
    assert device_module.initial_seed() == 6
    device_module.manual_seed_all(7)
    assert all(g.initial_seed() == 7 for g in generators)
    device_module.seed_all()
    assert len({g.initial_seed() for g in generators}) == 1
    assert device_module.initial_seed() != 7


def test_C29_states_are_saved_and_restored(device_module, device, name):
    state = device_module.get_rng_state()
    every = device_module.get_rng_state_all()
    first = torch.rand(5, device=device)
    device_module.set_rng_state(state)
    assert torch.equal(torch.rand(5, device=device), first)
    device_module.set_rng_state_all(every)
    with torch.random.fork_rng(devices=[0], device_type=name):  # torch 2.11 takes CUDA by default
        assert torch.equal(torch.rand(5, device=device), first)
    assert torch.equal(torch.rand(5, device=device), first)


def test_C29_checkpointing_draws_the_same_numbers_again(device):
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(1000, device=device, requires_grad=True)
    y = checkpoint(lambda v: torch.nn.functional.dropout(v, 0.5), x, use_reentrant=True)
    y.sum().backward()
    assert 0 < (y == 0).sum().item() < 1000
    assert torch.equal(x.grad, y)


@pytest.mark.skipif(
    not hasattr(torch._functorch._aot_autograd.utils, "register_graphsafe_rng_device_type"), reason="torch before 2.13"
)
def test_C29_a_compiled_checkpoint_draws_the_same_numbers_again(device):
    from torch.utils.checkpoint import checkpoint

    def part(v):
        return torch.nn.functional.dropout(v, 0.5).square()

    compiled = torch.compile(lambda v: checkpoint(part, v, use_reentrant=False), backend="aot_eager")
    steps = []
    for _ in range(2):
        x = torch.ones(1000, device=device, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert torch.equal(x.grad, 2 * y)  # 0, or 2 * 2 * 2 where y is 4
        steps.append(y.detach().cpu())
    assert set(steps[0].tolist()) == {0.0, 4.0}
    assert not torch.equal(*steps)


def test_D10_amp_of_the_module_is_torchs_with_the_device_filled_in(device_module, device, name):
    with device_module.amp.autocast(dtype=torch.bfloat16):
        assert torch.is_autocast_enabled(name)
        y = torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)
    assert y.dtype is torch.bfloat16
    scaler = device_module.amp.GradScaler()
    p = torch.ones(2, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler.scale((p * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [-1.0, -1.0]

    class Double(torch.autograd.Function):
        @staticmethod
        @device_module.amp.custom_fwd(cast_inputs=torch.float16)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @device_module.amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    with device_module.amp.autocast():
        assert Double.apply(p).dtype is torch.float16


def test_B20_higher_order_operators_run_under_autocast(device, name):
    x = torch.ones(3, device=device)
    predicate = torch.tensor(True, device=device)
    with torch.autocast(name, dtype=torch.bfloat16):
        out = torch.cond(predicate, lambda v: v + 1, lambda v: v - 1, (x,))
    assert out.tolist() == [2.0, 2.0, 2.0]


def test_typed_storages_are_found_by_torch(device_module, device, name):
    storage = torch.ones(2, device=device).storage()
    assert isinstance(storage, device_module.FloatStorage)
    assert not isinstance(storage, device_module.LongStorage)
    made = device_module.HalfStorage(4)
    assert made.dtype is torch.float16
    assert made.device.type == name
    assert storage.type() == f"torch.{name}.FloatStorage"


@pytest.mark.parametrize("text", ["a mydevice", "an openreg", "an acme", "a unicorn", "a eureka", "an uphill"])
def test_a_sentence_gives_the_device_its_article(device_module, monkeypatch, text):
    monkeypatch.setattr(_backend, "device", text.split()[1])
    with pytest.raises(ValueError, match=f"expected {text} device, got cpu"):
        device_module._utils._get_device_index("cpu")
