"""Two processes that share tensors: ``python sharing.py DEVICE GATE`` prints a line with the result of each scenario.

A scenario is a pair of generators, one for each process. They take turns: the queues of torch.multiprocessing send what
one yields to the other, where it is the value of ``yield``.
"""

import gc
import json
import sys
import traceback

import torch
import torch.multiprocessing as mp

SIZE = 1 << 20


def values(d, m, gates):
    """One reads what the other writes, through views with an offset and strides."""
    x = torch.arange(24.0, device=d).view(4, 6)
    reply = yield x[1:, ::2]
    return reply == x.cpu()[1:, ::2].sub(100).tolist() and x[1, 0].item() == 106 and x[0, 0].item() == 0


def values_other(d, m):
    view = yield
    before = view.tolist()
    view.add_(100)
    m.synchronize()
    yield before


def one_storage(d, m, gates):
    """Views of one storage have one storage in the other process, in one message and in two."""
    x = torch.zeros(8, device=d)
    yield [x[:4], x[2:]]
    return (yield x)


def one_storage_other(d, m):
    a, b = yield
    a.fill_(7)
    same = b[:2].tolist() == [7, 7] and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    again = yield None
    yield same and again.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()


def described(tensor):
    return str(tensor.dtype), str(tensor.device), tensor.requires_grad, str(tensor.to_dense().cpu().tolist())


def kinds(d, m, gates):
    """Dtypes, parameters, modules, sparse tensors, tensors without elements, and tensors of the CPU."""
    dtypes = [torch.bool, torch.int8, torch.bfloat16, torch.float64, torch.complex64]
    things = [torch.tensor([1, 0, 1]).to(dtype).to(d) for dtype in dtypes]
    things.append(torch.nn.Parameter(torch.ones(2, device=d)))
    things.append(torch.eye(3, device=d).to_sparse())
    things.append(torch.empty(0, 3, device=d))
    things.append(torch.ones(3))
    model = torch.nn.Linear(3, 2).to(d)
    things.append(model)
    expected = [described(thing) for thing in things[:-1]]
    got, output = yield things
    return got == expected and torch.allclose(torch.tensor(output), model(torch.ones(1, 3, device=d)).cpu())


def kinds_other(d, m):
    *things, model = yield
    yield [described(thing) for thing in things], model(torch.ones(1, 3, device=d)).tolist()


def references(d, m, gates):
    """The sender's memory lives as long as the other process has it, and no longer."""
    gc.collect()
    m.ipc_collect()
    m.empty_cache()
    free = m.mem_get_info()[0]
    x = torch.full((4 * SIZE,), 5.0, device=d)
    yield x
    del x
    others = [torch.full((4 * SIZE,), 6.0, device=d) for _ in range(3)]
    m.synchronize()
    kept = yield "still there?"
    del others
    yield "release it"
    m.ipc_collect()
    m.synchronize()
    m.empty_cache()
    return kept and m.mem_get_info()[0] >= free  # more, if the other process gave up what came before


def references_other(d, m):
    x = yield
    yield None
    kept = x.eq(5).all().item()
    yield kept
    del x
    gc.collect()
    yield None


def freed_at_once(d, m, gates):
    """Memory that the other process has released is freed as any other."""
    m.empty_cache()
    free = m.mem_get_info()[0]
    x = torch.full((4 * SIZE,), 5.0, device=d)
    yield x
    del x
    m.synchronize()
    m.empty_cache()
    return m.mem_get_info()[0] >= free


def freed_at_once_other(d, m):
    x = yield
    del x
    gc.collect()
    yield None


def room(d, m, gates):
    """An allocation that needs memory gets what the other process has released."""
    m.ipc_collect()
    m.empty_cache()
    bytes = m.mem_get_info()[0] * 4 // 10
    x = torch.empty(bytes, dtype=torch.uint8, device=d)
    yield x
    del x
    yield "release it"
    return torch.empty(2 * bytes, dtype=torch.uint8, device=d).numel() == 2 * bytes


def room_other(d, m):
    x = yield
    yield None
    del x
    gc.collect()
    yield None


def stream_order(d, m, gates):
    """The receiver's stream waits for the sender's queued work, on any stream."""
    s = m.Stream()
    x = torch.zeros(SIZE, device=d)
    m.synchronize()
    with m.stream(s):
        gates.delay(s, 50_000)
        x.fill_(3)
        first = yield x
        gates.delay(s, 50_000)
        x.fill_(4)
    x.record_stream(s)
    s2 = m.Stream()
    with m.stream(s2):
        second = yield x  # sent from another stream, after the same work
    return first == 3 * SIZE and second in (3 * SIZE, 4 * SIZE)


def stream_order_other(d, m):
    x = yield
    x = yield x.sum().item()
    yield x.sum().item()


def own_tensor(d, m, gates):
    """The other process can be the sender."""
    y = yield "send one"
    result = y.tolist()
    del y
    gc.collect()
    yield None
    return result == [0, 1, 2]


def own_tensor_other(d, m):
    yield
    yield torch.arange(3, device=d)
    yield None


def no_second_hand(d, m, gates):
    """A tensor that was received cannot be sent on; its clone can."""
    text, clone = yield torch.ones(3, device=d)
    return "clone()" in text and clone.tolist() == [1, 1, 1]


def no_second_hand_other(d, m):
    x = yield
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(x)
        text = ""
    except RuntimeError as error:
        text = str(error)
    yield text, x.clone()


def events(d, m, gates):
    """An event that both processes have orders their streams, and can be queried."""
    s, e = m.Stream(), m.Event(interprocess=True)
    with gates.shut(s):
        e.record(s)
        before = yield e
    s.synchronize()
    after = yield None
    return before is False and after == [True, True]


def events_other(d, m):
    e = yield
    s = m.Stream()
    s.wait_event(e)
    yield e.query() or s.query()
    e.synchronize()
    s.synchronize()
    yield [e.query(), s.query()]


def second_device(d, m, gates):
    """A tensor keeps its device."""
    device, total = yield torch.ones(5, device=f"{d}:1")
    return device == f"{d}:1" and total == 5


def second_device_other(d, m):
    x = yield
    yield str(x.device), x.sum().item()


SCENARIOS = [
    values,
    one_storage,
    kinds,
    references,
    freed_at_once,
    room,
    stream_order,
    own_tensor,
    no_second_hand,
    events,
    second_device,
]


END = "the scenario is over"


def other_process(d, inbox, outbox):
    m = torch.get_device_module(d)
    while (scenario := inbox.get()) is not None:
        turn = globals()[f"{scenario}_other"](d, m)
        next(turn)
        try:
            while (message := [inbox.get()]) != [END]:
                answer = turn.send(message.pop())
                outbox.put(answer)
                del answer
        except Exception:
            outbox.put(traceback.format_exc())
        gc.collect()


def play(scenario, d, gates, inbox, outbox):
    turn = scenario(d, torch.get_device_module(d), gates)
    message = next(turn)
    while True:
        inbox.put(message)
        del message
        answer = outbox.get(timeout=30)
        if isinstance(answer, str) and "Traceback" in answer:
            return answer
        try:
            message = turn.send(answer)
        except StopIteration as end:
            inbox.put(END)
            return bool(end.value)
        finally:
            del answer


def main():
    from gates import Gates

    d, gate = sys.argv[1:]
    context = mp.get_context("spawn")
    inbox, outbox = context.SimpleQueue(), context.Queue()
    process = context.Process(target=other_process, args=(d, inbox, outbox))
    process.start()
    try:
        for scenario in SCENARIOS:
            inbox.put(scenario.__name__)
            try:
                result = play(scenario, d, Gates(gate), inbox, outbox)
            except Exception:
                result = traceback.format_exc()
            print(json.dumps([scenario.__name__, result]), flush=True)
            if result is not True:
                return  # the two are out of step
        inbox.put(None)
        process.join(30)
        print(json.dumps(["end", process.exitcode]), flush=True)
    finally:
        process.kill()


if __name__ == "__main__":
    main()
