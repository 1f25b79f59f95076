"""Device generators: contract rows E32, E34, E36, E37.

Distributions, fork_rng and the CPU's generator are in the conformance suite ``runtime``, which
test_conformance_kit.py runs.
"""

import pickle
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch


def draw(device, generator=None, count=64):
    return torch.empty(count, device=device).uniform_(generator=generator).cpu()


def words(state):
    return struct.unpack("=QQ", bytes(state.tolist()))


def test_e34_a_generator_has_its_device_and_the_default_seed(device):
    generator = torch.Generator(device=device)
    assert generator.device == torch.device(device.type, torch.accelerator.current_device_index())
    assert generator.initial_seed() == torch._C.default_generator.__class__().initial_seed() == 67280421310721
    assert generator.manual_seed(3) is generator
    assert generator.initial_seed() == 3
    seeds = {generator.seed() for _ in range(4)}
    assert len(seeds) == 4
    assert generator.initial_seed() in seeds
    with pytest.raises(RuntimeError, match="invalid device"):
        torch.Generator(device=f"{device.type}:{torch.accelerator.device_count()}")


def test_e34_the_state_is_seed_and_offset(device):
    generator = torch.Generator(device=device).manual_seed(2**63 + 5)
    state = generator.get_state()
    assert (state.dtype, state.device.type, tuple(state.shape)) == (torch.uint8, "cpu", (16,))
    assert words(state) == (2**63 + 5, 0)
    generator.set_offset(12)
    assert words(generator.get_state()) == (2**63 + 5, 12)
    assert generator.get_offset() == 12
    generator.set_state(torch.tensor(list(struct.pack("=Q", 77)), dtype=torch.uint8))  # a seed alone
    assert (generator.initial_seed(), generator.get_offset()) == (77, 0)


def test_e34_a_wrong_state_is_refused_and_changes_nothing(device):
    generator = torch.Generator(device=device).manual_seed(4)
    before = generator.get_state()
    with pytest.raises(ValueError, match=r"has 16 bytes \(seed, offset\) or 8 \(seed\), got 5"):
        generator.set_state(torch.zeros(5, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"must be a torch\.ByteTensor"):
        generator.set_state(torch.zeros(16))
    with pytest.raises(ValueError, match="multiple of 4, got 6"):
        generator.set_state(torch.tensor(list(struct.pack("=QQ", 77, 6)), dtype=torch.uint8))
    with pytest.raises(ValueError, match="multiple of 4, got 2"):
        generator.set_offset(2)
    assert torch.equal(before, generator.get_state())


def test_e34_a_seed_a_state_a_clone_and_a_pickle_repeat_the_numbers(device):
    generator = torch.Generator(device=device).manual_seed(8)
    first = draw(device, generator)
    assert generator.get_offset() > 0
    state = generator.get_state()
    clone, pickled = generator.clone_state(), pickle.loads(pickle.dumps(generator))
    assert clone.device == pickled.device == generator.device
    second = draw(device, generator)
    assert not torch.equal(first, second)
    assert not torch.equal(clone.get_state(), generator.get_state())
    for other in (clone, pickled):
        assert torch.equal(other.get_state(), state)
        assert torch.equal(draw(device, other), second)
    generator.set_state(state)
    assert torch.equal(draw(device, generator), second)
    generator.manual_seed(8)
    assert generator.get_offset() == 0
    assert torch.equal(draw(device, generator), first)


@pytest.mark.kernels  # the CPU draws other amounts
def test_e34_a_shared_state_moves_for_all_that_share_it(device):
    generator = torch.Generator(device=device).manual_seed(6)
    first = draw(device, generator, 128)
    generator.manual_seed(6)
    shared = generator.graphsafe_get_state()
    assert shared.device == generator.device
    drawn = [draw(device, one) for one in (shared, generator)]
    assert torch.equal(torch.cat(drawn), first)
    assert generator.get_offset() == shared.get_offset() == 128
    shared.manual_seed(7).set_offset(8)
    assert words(generator.get_state()) == (7, 8)


@pytest.mark.kernels  # the CPU draws other amounts
def test_e34_a_generator_takes_anothers_state(device):
    generator = torch.Generator(device=device).manual_seed(6)
    before = generator.graphsafe_get_state()
    other = torch.Generator(device=device).manual_seed(9)
    generator.graphsafe_set_state(other)
    draw(device, generator)
    assert words(other.get_state()) == words(generator.get_state()) == (9, 64)
    draw(device, other)
    assert generator.get_offset() == 128
    generator.graphsafe_set_state(before)  # as a graph does at its end
    draw(device, generator)
    assert words(before.get_state()) == (6, 64)
    assert words(other.get_state()) == (9, 128)
    clone = generator.graphsafe_get_state().clone_state()  # which is not shared
    draw(device, clone)
    assert (generator.get_offset(), clone.get_offset()) == (64, 128)


def test_e34_a_state_is_not_shared_with_another_device(device):
    generator = torch.Generator(device=device).manual_seed(6)
    others = [torch.Generator()]
    others += [torch.Generator(f"{device.type}:{i}") for i in range(1, torch.accelerator.device_count())]
    for other in others:
        with pytest.raises(
            RuntimeError, match=f"on '{device.type}:0' to share its state, but found one on '{other.device}'"
        ):
            generator.graphsafe_set_state(other)
    assert words(generator.get_state()) == (6, 0)


def test_e32_factories_take_a_device_generator(device):
    generator = torch.Generator(device=device)
    for make in (torch.rand, torch.randn, torch.randperm):
        first, again, other = (make(100, device=device, generator=generator.manual_seed(s)).cpu() for s in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_e32_drawing_moves_the_devices_generator_and_takes_no_other(device):
    generator = torch.Generator(device=device).manual_seed(1)
    draw(device, generator)
    once = generator.get_offset()
    assert once > 0
    assert once % 4 == 0
    draw(device, generator)
    assert generator.get_offset() > once
    with pytest.raises(RuntimeError, match="generator"):
        torch.empty(4, device=device).uniform_(generator=torch.Generator())


def test_e32_e34_threads_that_share_a_state_never_share_a_range(device):
    generator = torch.Generator(device=device).manual_seed(1)
    draw(device, generator)
    one = generator.get_offset()
    generator.manual_seed(1)
    shared = [generator, *(generator.graphsafe_get_state() for _ in range(3))]
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda each: draw(device, each), shared * 20))
    assert generator.get_offset() == 80 * one
    assert len({tuple(numbers.tolist()) for numbers in drawn}) == 80


@pytest.mark.requires("multi_device")
def test_e36_each_index_has_its_own_default_generator(device, device_module):
    states = device_module.get_rng_state_all()
    try:
        device_module.manual_seed_all(1)
        draw(f"{device.type}:0")
        zero, one = device_module.get_rng_state_all()[:2]
        assert words(zero)[1] > 0
        assert words(one) == (1, 0)
    finally:
        device_module.set_rng_state_all(states)


def test_e37_manual_seed_seeds_the_device(device, device_module, recwarn):
    torch.manual_seed(11)
    assert device_module.initial_seed() == 11
    before = device_module.get_rng_state()
    first = draw(device)
    assert not torch.equal(before, device_module.get_rng_state())
    torch.manual_seed(11)
    assert torch.equal(first, draw(device))
    assert not [w for w in recwarn if issubclass(w.category, UserWarning)]


def test_dropout_repeats_with_the_seed_and_keeps_the_rate(device):
    x, drawn = torch.ones(10_000, device=device), []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(torch.nn.functional.dropout(x, 0.25).cpu())
    assert torch.equal(*drawn)
    assert abs((drawn[0] == 0).float().mean().item() - 0.25) < 0.03
