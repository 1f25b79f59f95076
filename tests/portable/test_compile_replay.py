"""``mode="reduce-overhead"``: compiled graphs that are recorded at their second call and replayed from then on."""

import contextlib
import copy
import gc
import textwrap
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config

from portable.compare import each, on

pytestmark = [pytest.mark.requires("graph"), pytest.mark.usefixtures("each_compiles")]


@pytest.fixture
def ran(monkeypatch):
    """What each call of a compiled graph was: "call", kernel by kernel; "recorded"; "replayed"."""
    from torch_backplane.inductor import replay

    class Log(list):
        def since(self):
            seen = list(self)
            self.clear()
            return seen

    log = Log()
    capture, run, call = replay.Replayed.capture, replay._Recording.run, replay.Replayed.__call__

    def logs_capture(self, *arguments):
        recording = capture(self, *arguments)
        log.append("recorded")
        return recording

    def logs_run(self, arguments):
        log.append("replayed")
        return run(self, arguments)

    def logs_call(self, arguments):
        before = log.count("replayed")
        result = call(self, arguments)
        if log.count("replayed") == before:
            log.append("call")
        return result

    monkeypatch.setattr(replay.Replayed, "capture", logs_capture)
    monkeypatch.setattr(replay._Recording, "run", logs_run)
    monkeypatch.setattr(replay.Replayed, "__call__", logs_call)
    return log


def graphed(function, **settings):
    return torch.compile(function, mode="reduce-overhead", **settings)


def near(got, expected):
    torch.testing.assert_close(got.detach().cpu(), expected, rtol=1e-4, atol=1e-5)


def test_F26_the_second_call_is_recorded_and_later_ones_replay(device, ran):
    weight, inputs = torch.randn(8, 8), torch.randn(5, 4, 8)
    on_device = weight.to(device)
    function = graphed(lambda x: torch.relu(x @ on_device).sum(1))
    for x in inputs:
        near(function(x.to(device)), torch.relu(x @ weight).sum(1))
    assert ran == ["call", "recorded", "replayed", "replayed", "replayed", "replayed"]


def test_F26_results_stay_when_the_graph_is_replayed(device, ran):
    """torch's CUDA graphs overwrite them."""
    inputs = torch.randn(7, 300)
    function = graphed(lambda x: (x * 2, x.sum(), x.view(3, 100) + 1))
    kept = [function(x.to(device)) for x in inputs]
    views = [three[1:] for _, _, three in kept]
    for x, (double, total, plus), view in zip(inputs, kept, views, strict=True):
        near(double, x * 2)
        near(total, x.sum())
        near(plus, x.view(3, 100) + 1)
        near(view, (x.view(3, 100) + 1)[1:])
    assert ran.count("call") == 1


def test_results_outlive_the_function(device, device_module):
    function = graphed(lambda x: x * 3)
    for _ in range(3):
        y = function(torch.ones(1000, device=device))
    del function
    torch.compiler.reset()
    gc.collect()
    device_module.empty_cache()
    other = torch.zeros(100_000, device=device)
    assert y.tolist() == [3] * 1000
    assert other.sum().item() == 0


def test_reset_returns_the_memory(device, device_module):
    def reserved():
        gc.collect()
        device_module.empty_cache()
        return device_module.memory_reserved()

    before = reserved()
    function = graphed(lambda x: (x @ x).relu() @ x)
    for _ in range(3):
        function(torch.randn(1024, 1024, device=device))
    assert reserved() > before
    torch.compiler.reset()
    assert reserved() == before


def test_a_change_in_place_between_forward_and_backward_is_an_error(device):
    """A saved tensor that is an input or a result is that tensor, with its version."""
    function = graphed(lambda x, w: (x * w).exp())
    for k in range(5):
        w, x = torch.zeros(4, device=device, requires_grad=True), torch.ones(4, device=device)
        y = function(x, w)
        with torch.no_grad():
            (y, x)[k % 2].mul_(10)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_another_stream_may_read_results(device, device_module):
    """While they exist, and as long as record_stream says."""
    function, side, found, kept = graphed(lambda x: (x * 2 + 1, x @ x)), device_module.Stream(), [], []
    for k in range(6):
        x = torch.full((256, 256), float(k), device=device)
        y, product = function(x)
        side.wait_stream(device_module.current_stream())
        with device_module.stream(side):
            late = product
            for _ in range(20):
                late = late @ late * 0
            found.append((y + late).sum())
        product.record_stream(side)
        if k % 2:
            y.record_stream(side)
        else:
            kept.append(y)
        del y, product
    device_module.synchronize()
    assert [int(one.item()) for one in found] == [256 * 256 * (2 * k + 1) for k in range(6)]


def test_a_result_that_stays_is_moved_for_all_streams(device, device_module):
    function, side = graphed(lambda x: ((x * 2).sum(), x * 3)), device_module.Stream()
    late = torch.zeros(512, 512, device=device)
    for k in range(5):
        y = function(torch.full((1000,), float(k), device=device))[0]
        before = y.data_ptr()
        side.wait_stream(device_module.current_stream())
        for _ in range(10):
            late = late @ late
        function(torch.full((1000,), 77.0, device=device))
        with device_module.stream(side):
            read = y * 1
        side.synchronize()
        assert read.item() == 2000 * k
    assert y.data_ptr() != before


def test_a_result_that_is_exported_does_not_move(device):
    function, kept = graphed(lambda x: (x * 2, x.sum())), []
    for k in range(6):
        _, total = function(torch.full((1000,), float(k), device=device))
        kept.append((total, torch.from_dlpack(total)))
    for k, (total, exported) in enumerate(kept):
        assert total.item() == exported.item() == 1000 * k
        assert total.data_ptr() == exported.data_ptr()


@pytest.mark.long
def test_recordings_go_with_what_was_compiled(device, device_module):
    from torch_backplane.inductor import replay

    def run(width):
        model = nn.Linear(width, width, device=device)
        compiled = torch.compile(model, mode="reduce-overhead")
        for _ in range(3):
            compiled(torch.ones(2, width, device=device)).sum().backward()

    torch.compiler.reset()
    gc.collect()
    before, counts = len(replay._all), []
    for width in (64, 65, 66, 67):
        run(width)
        torch._dynamo.reset_code_caches()
        gc.collect()
        counts.append(len(replay._all) - before)
    assert counts[-1] <= counts[0]


@pytest.mark.long
def test_buffers_of_inputs_are_shared(device, ran, device_module):
    """By the recordings of a graph for other addresses."""
    model = nn.Linear(1000, 8).to(device).requires_grad_(False)
    compiled, reserved = graphed(model), []
    for _ in range(12):
        model.weight.data = model.weight.data.clone()
        compiled(torch.ones(1000, 1000, device=device))
        reserved.append(device_module.memory_reserved())
    assert ran.count("recorded") >= 2
    assert reserved[-1] - reserved[3] < 8 * 10**6


def test_what_a_function_returned_can_be_its_next_input(device, ran):
    function, x = graphed(lambda x: x.sin() + 1), torch.randn(50)
    got = x.to(device)
    for _ in range(6):
        got, x = function(got), x.sin() + 1
    near(got, x)
    assert ran.count("call") == 1


def test_inputs_that_are_written(device, ran):
    """In place at each address: a few buffers have a recording each."""

    def step(cache, x):
        cache.mul_(0.5).add_(x)
        return cache.sum()

    function = graphed(step)
    caches, expected = [torch.zeros(64, device=device) for _ in range(3)], [torch.zeros(64) for _ in range(3)]
    for i in range(12):
        x = torch.randn(64)
        near(function(caches[i % 3], x.to(device)), step(expected[i % 3], x))
    for got, wanted in zip(caches, expected, strict=True):
        near(got, wanted)
    assert ran.count("recorded") == 3
    assert ran.count("call") == 1


def test_results_that_are_views_of_inputs_or_of_each_other(device, ran):
    def function(x, y):
        z = x * 2
        return x.t(), z, z[1:], y, x[0].sum()

    compiled = graphed(function)
    for _ in range(4):
        x, y = torch.randn(3, 4), torch.randn(2)
        given = x.to(device), y.to(device)
        got = compiled(*given)
        for one, wanted in zip(got, function(x, y), strict=True):
            near(one, wanted)
        assert got[0].data_ptr() == given[0].data_ptr()
        assert got[2].untyped_storage().data_ptr() == got[1].untyped_storage().data_ptr()
    assert ran.count("replayed") == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 1).expand(4, 6),
        lambda: torch.randn(12, 6)[::3],
        lambda: torch.randn(4, 6).t().contiguous().t(),
        lambda: torch.randn(9).as_strided((4, 6), (1, 1)),
        lambda: torch.randn(0, 6),
        lambda: torch.randn(5, 6)[1:],
    ],
    ids=["expanded", "slice", "transposed", "overlapping", "empty", "offset"],
)
def test_inputs_of_any_strides(device, ran, make):
    compiled = graphed(lambda x: x.cumsum(0) + 1)
    for _ in range(4):
        x = make()
        near(compiled(on(device, x)), x.cumsum(0) + 1)
    assert ran.count("replayed") >= 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.dropout = nn.Linear(16, 32), nn.Linear(32, 4), nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x):
        return self.last(self.dropout(torch.tanh(self.norm(self.first(x)))))


def trained(device, mode, *, micro=1, keep=False, twice=False):
    torch.manual_seed(0)
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    run = net if mode is None else torch.compile(net, mode=mode)
    generator, kept = torch.Generator().manual_seed(1), []
    torch.manual_seed(5)
    for i in range(12):
        x = torch.randn(8, 16, generator=generator).to(device)
        y = run(x)
        loss = (y * y).mean() + (run(x + 1).mean() if twice else 0)
        loss.backward()
        if i % micro == micro - 1:
            optimizer.step()
            optimizer.zero_grad()
        kept.append(y.detach() if keep else loss.detach())
    return [one.cpu() for one in (*kept, *net.buffers(), *net.parameters())]


@pytest.mark.long_after_first
@pytest.mark.parametrize("settings", [{}, {"micro": 3}, {"keep": True}, {"twice": True}], ids=str)
def test_F26_training_is_eagers_bit_by_bit(device, ran, settings):
    """Dropout, batch statistics, accumulated gradients, two forwards before a backward, outputs that are kept."""
    expected = trained(device, "default", **settings)
    got = trained(device, "reduce-overhead", **settings)
    for one, wanted in zip(got, expected, strict=True):
        assert torch.equal(one, wanted)
    assert ran.count("call") <= 4
    assert ran.count("replayed") >= 20


class Layer(nn.Linear):
    def forward(self, x):
        return super().forward(x).tanh()


def test_layers_that_share_a_graph(device, ran):
    """Compiled one by one, they share the code, and each has its own weights."""
    torch.manual_seed(0)
    expected = nn.Sequential(*[Layer(16, 16) for _ in range(6)])
    net = copy.deepcopy(expected).to(device)
    for layer in net:
        layer.compile(mode="reduce-overhead")
    for i in range(6):
        x = torch.randn(4, 16)
        for model, given in ((net, x.to(device)), (expected, x)):
            model.zero_grad()
            (model(given) ** 2).sum().backward()
        for one, wanted in zip(net.parameters(), expected.parameters(), strict=True):
            near(one.grad, wanted.grad)
        if i == 3:
            ran.since()
    assert ran == ["replayed"] * 24


def test_attention_with_its_gradient(device, ran):
    q = torch.randn(2, 2, 9, 16, requires_grad=True)
    mine = q.detach().to(device).requires_grad_()

    def loss(q):
        return F.scaled_dot_product_attention(q, q * 2, q, is_causal=True).square().sum()

    compiled = graphed(loss)
    (expected,) = torch.autograd.grad(loss(q), q)
    for _ in range(5):
        (got,) = torch.autograd.grad(compiled(mine), mine)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-3)
    assert ran.since()[-2:] == ["replayed", "replayed"]


def test_random_numbers_are_those_of_calls(device):
    def draws(mode):
        torch.compiler.reset()
        function = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), mode=mode)
        torch.manual_seed(3)
        return [function(torch.ones(100, device=device)).cpu() for _ in range(5)], torch.rand(3, device=device).cpu()

    (expected, after), (got, got_after) = draws("default"), draws("reduce-overhead")
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert not torch.equal(got[3], got[4])
    assert torch.equal(after, got_after)


def test_each_size_has_its_recording(device, ran):
    function = graphed(lambda x: x * 2 + x.shape[0], dynamic=True)
    for _ in range(3):
        for rows in (5, 7, 9):
            x = torch.randn(rows, 3)
            near(function(x.to(device)), x * 2 + rows)
    assert ran.count("recorded") == 3
    assert ran.count("replayed") == 6


def test_many_sizes_are_reported(device, ran):
    with config.patch({"triton.cudagraph_dynamic_shape_warn_limit": 2}):
        function = graphed(lambda x: x + 1, dynamic=True)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for rows in (5, 5, 7, 7, 9, 9, 11, 11):
                function(torch.ones(rows, device=device))
    assert len([one for one in seen if "is recorded for more than 2 sets of sizes" in str(one.message)]) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"skip_cudagraph_warmup": True}, ["call", "recorded", *["replayed"] * 3]),
        ({"force_cudagraphs_warmup": True}, ["call"] * 4),
        ({"cudagraph_capture_sizes": (7,)}, ["call"] * 4),
        ({"cudagraph_skip_dynamic_graphs": True}, []),
    ],
    ids=str,
)
def test_options_of_torch(device, ran, options, expected):
    with config.patch({f"triton.{name}": value for name, value in options.items()}):
        function = graphed(lambda x: x + x.shape[0], dynamic=True)
        for _ in range(4):
            assert function(torch.ones(5, device=device)).tolist() == [6] * 5
    assert ran == expected


def test_one_address_after_another_ends_in_calls(device, ran, caplog):
    def step(x):
        x.add_(1)

    with config.patch({"triton.cudagraph_unexpected_rerecord_limit": 2}):
        function = graphed(step)
        given = [torch.zeros(3, device=device) for _ in range(8)]
        for x in given:
            function(x)
    assert [x.tolist() for x in given] == [[1, 1, 1]] * 8
    assert "inputs that are used in place, at more than 2 addresses" in caplog.text
    assert ran == ["call", *["recorded", "replayed"] * 3, *["call"] * 4]


def test_F26_what_cannot_be_recorded_runs_and_is_reported(device, ran, caplog):
    @torch.library.custom_op("replay_tests::at_the_host", mutates_args=())
    def at_the_host(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    at_the_host.register_fake(torch.empty_like)
    skipped = counters["inductor"]["cudagraph_skips"]
    function = graphed(lambda x: at_the_host(x) + 1)
    for k in range(1, 5):
        assert function(torch.full((2,), float(k), device=device)).tolist() == [2 * k * k + 1] * 2
    assert ran == ["call"] * 4
    assert counters["inductor"]["cudagraph_skips"] > skipped
    assert "skipping cudagraphs due to aten::_local_scalar_dense" in caplog.text


def test_an_error_of_an_operator_is_raised_and_does_not_end_the_recordings(device, ran):
    @torch.library.custom_op("replay_tests::fails_once", mutates_args=())
    def fails_once(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("not now")
        return x + 1

    calls = []
    fails_once.register_fake(torch.empty_like)
    function, x = graphed(lambda x: fails_once(x) * 2), torch.ones(2, device=device)
    function(x)
    with pytest.raises(ValueError, match="not now"):
        function(x)
    assert [function(x).tolist() for _ in range(3)] == [[4, 4]] * 3
    assert ran.count("replayed") == 3


@pytest.mark.long
def test_a_size_that_does_not_fit_is_not_recorded(device, ran, device_module):
    function = graphed(lambda x: (x * 2).cos() + x.shape[0], dynamic=True)

    def both():
        for rows in (1000, 4_000_000):
            function(torch.ones(rows, 4, device=device))

    both()
    device_module.set_per_process_memory_fraction(0.2)
    try:
        free = device_module.mem_get_info()[0]
        assert free > 2**26
        held = torch.empty(int(free * 0.2) - 3 * 2**26, dtype=torch.uint8, device=device)
        function(torch.ones(1000, 4, device=device))
        with contextlib.suppress(torch.OutOfMemoryError):
            function(torch.ones(4_000_000, 4, device=device))
        del held
    finally:
        device_module.set_per_process_memory_fraction(1.0)
    ran.clear()
    function(torch.ones(1000, 4, device=device))
    assert ran == ["replayed"]


def test_an_error_can_be_asked_for(device):
    @torch.library.custom_op("replay_tests::at_the_host_again", mutates_args=())
    def at_the_host_again(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    at_the_host_again.register_fake(torch.empty_like)
    with config.patch({"triton.cudagraph_or_error": True}):
        function = graphed(at_the_host_again)
        function(torch.ones(2, device=device))
        with pytest.raises(RuntimeError, match="skipping cudagraphs due to aten::_local_scalar_dense"):
            function(torch.ones(2, device=device))


def test_operators_that_must_not_be_recorded(device, ran):
    @torch.library.custom_op("replay_tests::counted", mutates_args=(), tags=[torch.Tag.cudagraph_unsafe])
    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + len(calls)

    calls = []
    counted.register_fake(torch.empty_like)
    function = graphed(counted)
    got = [function(torch.zeros(1, device=device)).item() for _ in range(4)]
    assert got == [1, 2, 3, 4]
    assert ran == []


def test_a_number_on_the_cpu_is_not_recorded(device):
    function = graphed(lambda x, y: x * y)
    for k in range(4):
        assert function(torch.ones(2, device=device), torch.tensor(float(k))).tolist() == [k, k]


def test_an_error_of_the_call_is_its_own(device):
    function = graphed(lambda x, i: x[i])
    for _ in range(3):
        function(torch.ones(4, device=device), torch.tensor([1], device=device))

    def fail():
        function(torch.ones(4, device=device), torch.tensor([9], device=device))
        torch.accelerator.synchronize()

    with pytest.raises(IndexError):
        fail()


def test_a_users_capture_has_the_kernels(device, device_module):
    function, x = graphed(lambda x: x * 2), torch.ones(4, device=device)
    for _ in range(3):
        function(x)
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        y = function(x)
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [8] * 4


def test_threads_and_streams_have_their_own(device, device_module):
    function, failed = graphed(lambda x: (x @ x).sin().sum(1)), []
    function(torch.randn(64, 64, device=device))

    def work(k):
        generator = torch.Generator().manual_seed(k)
        try:
            with device_module.stream(device_module.Stream()):
                for _ in range(10):
                    x = torch.randn(64, 64, generator=generator)
                    torch.testing.assert_close(function(x.to(device)).cpu(), (x @ x).sin().sum(1), rtol=1e-3, atol=1e-3)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []


@pytest.mark.parametrize("dtype", each([torch.complex64, torch.bool, torch.float16]))
def test_dtypes(device, ran, dtype):
    function = graphed(lambda x: x.conj().t().contiguous() if dtype.is_complex else x.t() == x.t())
    for _ in range(4):
        x = torch.randn(3, 4).to(dtype)
        expected = x.conj().t() if dtype.is_complex else x.t() == x.t()
        assert torch.equal(function(x.to(device)).cpu(), expected.resolve_conj())


def test_inference_mode_and_grad_mode(device):
    function = graphed(lambda x: x * 2)
    for _ in range(3):
        with torch.inference_mode():
            assert function(torch.ones(2, device=device)).is_inference()
        y = function(torch.ones(2, device=device))
        assert not y.is_inference()
        y.add_(1)
        assert y.tolist() == [3, 3]


@pytest.mark.long
def test_cpp_wrapper_is_replayed(device, ran):
    with config.patch(cpp_wrapper=True, graph_partition=False):  # torch leaves graphs out of C++ in parts
        function = graphed(lambda x: (x @ x).relu())
        for _ in range(3):
            x = torch.randn(8, 8)
            near(function(x.to(device)), (x @ x).relu())
    assert ran == ["call", "recorded", "replayed", "replayed"]


@pytest.mark.requires("host_exec")  # an option of the simulated device
def test_F26_a_driver_without_graphs_is_named_once(run_in_process):
    code = """
        import warnings, torch, mydevice
        x = torch.randn(4, device="mydevice")
        for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                function = torch.compile(lambda x: x + len(mode), mode=mode)
                for _ in range(3):
                    assert torch.equal(function(x), x + len(mode))
            print([str(one.message).partition(":")[0] for one in seen if "bp.graph" in str(one.message)])
            torch.compiler.reset()
    """
    said = "torch.compile's modes reduce-overhead and max-autotune run on mydevice kernel by kernel"
    ran = run_in_process(textwrap.dedent(code), options="graph=off", env={"MYDEVICE_DRIVER": None})
    assert ran.stdout.splitlines() == [str([said]), "[]", "[]"]
