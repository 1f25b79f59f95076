"""Tensors sent by other channels than torch's; messages that are received twice, or were altered."""

import gates
import pytest

pytestmark = pytest.mark.once

# Rebuilds what it is given, prints it, and adds 100 to it.
RECEIVER = """
import pickle, sys, torch
rebuild, args = pickle.loads(bytes.fromhex(sys.argv[1]))
try:
    thing = rebuild(*args)
except RuntimeError as error:
    print("refused:", error)
    sys.exit()
if isinstance(thing, torch.UntypedStorage):
    thing = torch.empty(0, dtype=torch.float32, device=thing.device).set_(thing)
print(type(thing).__name__, thing.dtype, thing.requires_grad, thing.to_dense().tolist())
with torch.no_grad():
    (thing.values() if thing.is_sparse else thing).add_(100)
torch.get_device_module(thing.device).synchronize()
"""


@pytest.fixture
def run(run_in_process, name):
    """``run(code, options)``: what a sender prints; ``receive(thing)`` is what another process prints of the thing."""

    def start(code, options, **env):
        prelude = f"""
import gc, pickle, subprocess, sys, torch
import torch.multiprocessing as mp
from torch.multiprocessing import reductions
m = torch.{name}
def receive(reduced, receiver={RECEIVER!r}):
    command = [sys.executable, "-W", "ignore", "-c", receiver, pickle.dumps(reduced).hex()]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() + done.stderr.strip()
"""
        env = {f"{name.upper()}_DRIVER": None, **env}
        return run_in_process(prelude + code, options=options, env=env).stdout.splitlines()

    return start


@pytest.mark.long
def test_E52_what_reduce_tensor_gives_is_a_handle_in_any_pickle(run, name, memory_kind):
    assert run(
        f"""
x = torch.arange(6.0, device="{name}")
print(receive(reductions.reduce_tensor(x[2:5])), x.tolist())
p = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16, device="{name}"))
print(receive(reductions.reduce_tensor(p)), p.tolist())
s = torch.eye(2, device="{name}").to_sparse()
print(receive(reductions.reduce_tensor(s)), s.to_dense().tolist())
print(receive(reductions.reduce_storage(x.untyped_storage())), x.tolist())
print(receive(reductions.reduce_tensor(torch.empty(0, 3, device="{name}"))))
""",
        f"kind={memory_kind}",
    ) == [
        "Tensor torch.float32 False [2.0, 3.0, 4.0] [0.0, 1.0, 102.0, 103.0, 104.0, 5.0]",
        "Parameter torch.bfloat16 True [1.0, 1.0] [101.0, 101.0]",
        "Tensor torch.float32 False [[1.0, 0.0], [0.0, 1.0]] [[101.0, 0.0], [0.0, 101.0]]",
        "Tensor torch.float32 False [0.0, 1.0, 102.0, 103.0, 104.0, 5.0] [100.0, 101.0, 202.0, 203.0, 204.0, 105.0]",
        "Tensor torch.float32 False []",
    ]


@pytest.mark.long_after_first
def test_torchs_reductions_can_be_registered_again(run, name, memory_kind):
    """Programs with another pickler call ``init_reductions()``."""
    assert run(
        f"""
reductions.init_reductions()
queue = mp.get_context("spawn").Queue()
x = torch.ones(3, device="{name}")
queue.put([x, x.untyped_storage(), torch.ones(2), torch.nn.Parameter(x)])
y, storage, host, parameter = queue.get(timeout=60)
places = {{y.data_ptr(), storage.data_ptr(), parameter.data_ptr()}}
print(places == {{x.data_ptr()}}, host.tolist(), type(parameter).__name__)
""",
        f"kind={memory_kind}",
    ) == ["True [1.0, 1.0] Parameter"]


def test_a_queue_sends_the_receiver_the_error_of_what_cannot_be_shared(run, name, tmp_path):
    """The sender's error is raised in the queue's thread, and the receiver would wait forever."""
    printed = run(
        f"""
queue = mp.get_context("spawn").Queue()
queue.put(torch.ones(3, device="{name}"))
queue.put("the next message")
try:
    print(queue.get(timeout=60))
except RuntimeError as error:
    print("could not be shared" in str(error), "bp.ipc" in str(error), ".cpu()" in str(error))
print(queue.get(timeout=60))
""",
        "devices=1",
        **{f"{name.upper()}_DRIVER": gates.minimal_driver(tmp_path)},
    )
    assert printed == ["True True True", "the next message"]


@pytest.mark.long
def test_E52_a_message_that_is_received_twice_finds_its_memory_or_is_refused(run, name, memory_kind):
    assert run(
        f"""
def free():
    gc.collect()
    m.ipc_collect()
    m.synchronize()
    m.empty_cache()
    return m.mem_get_info()[0]
before = free()
x = torch.zeros(1 << 20, device="{name}")
first, second = reductions.reduce_tensor(x[:1]), reductions.reduce_tensor(x[:1])
for _ in range(3):
    print(receive(first))
print(x[0].item())
del x
print(free() == before)
y = torch.zeros(1 << 20, device="{name}")
for message in (first, second):
    print("this message's tensor no longer exists" in receive(message))
print(y.sum().item(), receive(reductions.reduce_tensor(y[:1])), y[0].item())
del y
print(free() == before)
""",
        f"kind={memory_kind}",
    ) == [
        "Tensor torch.float32 False [0.0]",
        "Tensor torch.float32 False [100.0]",
        "Tensor torch.float32 False [200.0]",
        "300.0",
        "True",
        "True",
        "True",
        "0.0 Tensor torch.float32 False [0.0] 100.0",
        "True",
    ]


ALTERED = """
import pickle, random, sys, torch
rebuild, (process, uuid, index, parts) = pickle.loads(bytes.fromhex(sys.argv[1]))
memory, offset, bytes_, event, counter = parts

def attempt(*altered, index=index, uuid=uuid):
    try:
        storage = rebuild(process, uuid, index, altered)
    except (RuntimeError, ValueError, TypeError, OverflowError):
        return False
    torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu()  # all of it can be read
    return True

numbers = [2**64 - 4096, 2**64 - 512, 2**64 - 1, 2**63, 2**63 - 1, 2**62, 2**40, -1, -4096, 2**64, 2**70, "8", None]
for number in numbers:
    for altered in ((memory, number, bytes_), (memory, offset, number), (memory, number, 4096), (memory, 512, number)):
        if attempt(*altered, event, counter):
            print("taken:", altered[1:])
for number in numbers:
    if isinstance(number, int) and attempt(memory, number, 2**64 - number & 2**64 - 1, event, counter):
        print("taken, with a sum of 2^64:", number)
for device in (-2, 64, 200, 2**40):
    if attempt(memory, offset, bytes_, event, counter, index=device, uuid="0-0"):
        print("taken: device", device)
draw = random.Random(7)

def flipped(data):
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed[: draw.choice([len(changed)] * 5 + [draw.randrange(len(changed))])])

taken = 0
for _ in range(400):
    altered = [memory, offset, bytes_, event, counter]
    at = draw.choice([0, 0, 3, 4])
    altered[at] = flipped(altered[at])
    taken += attempt(*altered)
print(attempt(*parts), taken < 400, torch.ones(3, device="NAME").sum().item())
"""


@pytest.mark.long_after_first
def test_E52_an_altered_message_is_refused_or_stays_within_what_was_opened(run, name, memory_kind):
    """Offsets and sizes are checked against the memory that the handle opened."""
    receiver = ALTERED.replace("NAME", name)
    assert run(
        f"""
around = [torch.full((1 << 20,), value, device="{name}") for value in (1.0, 2.0, 3.0)]
x = around[1]
print(receive(reductions.reduce_storage(x.untyped_storage()), {receiver!r}))
print([t.unique().tolist() for t in around])
""",
        f"kind={memory_kind}",
    ) == ["True True 3.0", "[[1.0], [2.0], [3.0]]"]
