"""The asynchronous offloader on an emulated link: its time is the formula's, and no byte moves that need not."""

import weakref
from functools import partial
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hooklaw.offload.formula import StepCost  # noqa: E402 - idem
from hooklaw_backends.offload.asynchronous import Async, AsyncAll  # noqa: E402 - needs torch
from hooklaw_backends.offload.link import Clock, EmulatedLane, LaneLink, VirtualLane  # noqa: E402 - idem
from offload_models import mlp, same, step  # noqa: E402 - idem

CPU = torch.device("cpu")


class Sleeping(torch.autograd.Function):
    """An operation that saves its input and takes a set time on the virtual clock."""

    @staticmethod
    def forward(ctx, x, clock, times):  # noqa: D102 - it is forward
        ctx.save_for_backward(x)
        ctx.clock, ctx.times = clock, times
        clock.sleep(times[0])
        return x + 1

    @staticmethod
    def backward(ctx, grad):  # noqa: D102 - idem
        assert len(ctx.saved_tensors) == 1
        ctx.clock.sleep(ctx.times[1])
        return grad, None, None


LAYERS, ELEMENTS = 64, 256
NBYTES = 4 * ELEMENTS


def scheduled(rate_out, rate_back, *, cap=4 * NBYTES, window=8 * NBYTES, times=(1.0, 2.0)):
    """Run a step of sleeping layers on a virtual link; return its two times, the packer and both lanes."""
    clock = Clock()
    out, back = VirtualLane(clock, rate_out), VirtualLane(clock, rate_back)
    packer = Async(cap=cap, window=window, min_bytes=0, link=lambda device: LaneLink(out, back))
    x = torch.ones(ELEMENTS, requires_grad=True)
    y = x * 1
    with packer:
        for _ in range(LAYERS):
            y = Sleeping.apply(y, clock, times)
    forward = clock.now
    y.sum().backward()
    return SimpleNamespace(forward=forward, total=clock.now, packer=packer, out=out, back=back, gradient=x.grad)


@pytest.mark.parametrize("speed", [0.25, 0.5, 0.9, 1.1, 2.0, 4.0, 100.0])
@pytest.mark.parametrize("turn", [0.5, 1.0, 3.0])
def test_overlap_takes_the_time_of_the_formula(speed, turn):
    """Whatever the rates, the measured step is within 5 % of the formula, and at least 0.9 of the floor."""
    rates = speed * NBYTES, speed * turn * NBYTES
    cap = 4 * NBYTES
    done = scheduled(*rates, cap=cap)
    formula = StepCost(forward=LAYERS * 1.0, backward=LAYERS * 2.0, out_rate=rates[0], back_rate=rates[1])
    floor = formula.floor(LAYERS * NBYTES, resident=cap)

    assert done.total == pytest.approx(floor, rel=0.05)
    assert floor / done.total >= 0.9
    assert done.forward >= formula.forward
    assert torch.equal(done.gradient, torch.ones(ELEMENTS))


def test_formula_counts_what_may_stay():
    """What may be on the device at the turn need not be out before it, nor, if the link is behind, come back."""
    step = StepCost(forward=1.0, backward=2.0, out_rate=10.0, back_rate=10.0)

    assert step.floor(100.0) == 10.0 + 10.0
    assert step.floor(100.0, resident=20.0) == 8.0 + 8.0
    assert step.floor(25.0, resident=20.0) == 1.0 + 2.0
    assert step.floor(40.0, resident=35.0) == 1.0 + 2.0
    assert step.floor(30.0, resident=5.0) == 2.5 + 2.5


def test_overlap_beats_copying_in_the_way():
    """A link as fast as the computation costs nearly nothing; the same copies one after another double the step."""
    rate = NBYTES / 1.0
    formula = StepCost(forward=LAYERS * 1.0, backward=LAYERS * 2.0, out_rate=rate, back_rate=rate)

    assert scheduled(rate, rate).total < 1.05 * formula.plain()
    assert formula.synchronous(LAYERS * NBYTES) > 1.6 * formula.plain()


def test_bytes_move_once_each_way_and_those_in_flight_need_not_come_back():
    """What backward asks for while it is still on its way out is taken from the device."""
    done = scheduled(0.5 * NBYTES, 0.5 * NBYTES, cap=8 * NBYTES)
    counts = done.packer.counters()

    assert done.out.nbytes == counts["bytes_out"] == LAYERS * NBYTES
    assert done.back.nbytes == counts["bytes_back"] == (LAYERS - 8) * NBYTES


def test_flight_is_capped():
    """Forward never has more under way than the cap, but for the one tensor that is being packed."""
    clock = Clock()
    packer = Async(cap=3 * NBYTES, min_bytes=0, link=lambda device: slow(clock))
    held = []
    handles = []
    for _ in range(10):
        handles.append(packer.pack(torch.ones(ELEMENTS)))
        held.append(packer.links.scheduler(CPU).held())

    assert max(held) == 3 * NBYTES
    assert clock.now == 7 * 1.0


def test_window_bounds_what_is_fetched_ahead():
    """Beyond what is in use, backward has at most the window fetched, in the order in which it will ask."""
    clock = Clock()
    packer = Async(cap=0, window=3 * NBYTES, min_bytes=0, link=lambda device: slow(clock))
    handles = [packer.pack(torch.full((ELEMENTS,), float(n))) for n in range(10)]
    scheduler = packer.links.scheduler(CPU)
    packer.unpack(handles[9])

    assert sorted(scheduler._fetched) == [6, 7, 8]
    assert packer.unpack(handles[2])[0] == 2
    assert scheduler.held() <= 7 * NBYTES
    assert [packer.unpack(one)[0].item() for one in reversed(handles)] == list(range(9, -1, -1))


def waiting(n, *, window):
    """Return a packer on a slow link, its scheduler and its clock, with so many tensors that are out already."""
    clock = Clock()
    packer = Async(cap=0, window=window, min_bytes=0, link=lambda device: slow(clock))
    handles = [packer.pack(torch.full((ELEMENTS,), float(one))) for one in range(n)]
    return packer, handles, packer.links.scheduler(CPU), clock


def test_one_is_fetched_ahead_however_small_the_window():
    """A tensor larger than the window is fetched ahead all the same, one at a time."""
    packer, handles, scheduler, _ = waiting(4, window=NBYTES // 2)
    packer.unpack(handles[3])

    assert list(scheduler._fetched) == [2]


def test_what_was_used_is_not_fetched_ahead_again():
    """A Node that saved two tensors asks for them in any order; the one it had already stays where it is."""
    packer, handles, _, _ = waiting(3, window=8 * NBYTES)
    packer.unpack(handles[1])
    packer.unpack(handles[2])

    assert packer.counters()["bytes_back"] == 3 * NBYTES


def test_what_waits_for_other_handles_is_bounded():
    """Elements that stay for a second handle give way beyond twice the window, and come back when it asks."""
    packer, handles, scheduler, _ = waiting(10, window=2 * NBYTES)
    twins = [type(one)(one._parcel, one._layout) for one in handles]
    held = []
    for handle in reversed(handles):
        packer.unpack(handle)
        held.append(scheduler.held())

    assert max(held) <= 5 * NBYTES
    assert [packer.unpack(one)[0].item() for one in reversed(twins)] == list(range(9, -1, -1))


def test_dead_elements_on_their_way_back_are_waited_for():
    """Memory of the device that a copy still writes to is not given back before the copy is over."""
    packer, handles, _, clock = waiting(2, window=8 * NBYTES)
    packer.unpack(handles.pop())
    before = clock.now
    handles.pop()

    assert (before, clock.now) == (3.0, 4.0)


def test_change_in_flight_is_no_fault_of_its_neighbour():
    """Elements that cannot be trusted are left alone when those packed after them are asked for."""
    clock = Clock()
    packer = Async(min_bytes=0, link=lambda device: slow(clock))
    tensor = torch.ones(ELEMENTS)
    changed, sound = packer.pack(tensor), packer.pack(torch.ones(ELEMENTS))
    tensor.add_(1)
    clock.sleep(10)

    assert packer.unpack(sound).sum() == ELEMENTS
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        packer.unpack(changed)


def test_finished_copy_holds_no_tensor():
    """What a worker copied is not kept alive by the note that it was copied."""
    lane, tensor = EmulatedLane(1e9), torch.ones(8)
    gone, job = weakref.ref(tensor), lane.send(1, tensor.sum)
    lane.close()
    del tensor

    assert job.done()
    assert gone() is None


def test_duplicates_share_one_way_back():
    """Elements that two handles wait for come back once, and a second pass over the graph fetches them once more."""
    packer = Async(cap=0, min_bytes=0)
    tensor = torch.ones(ELEMENTS)
    handles = [packer.pack(tensor), packer.pack(tensor.view(2, -1))]
    for times in (1, 2):
        for handle in handles:
            packer.unpack(handle)
        assert packer.counters()["bytes_back"] == times * NBYTES


def slow(clock):
    """Return a virtual link that takes a second for each tensor of these tests."""
    return LaneLink(VirtualLane(clock, NBYTES), VirtualLane(clock, NBYTES))


def emulated(rate):
    """Return a link that takes its time."""
    return LaneLink(EmulatedLane(rate), EmulatedLane(rate))


def test_retained_graph_in_flight_is_not_read_back_half_written():
    """While elements are on their way out, every pass takes them from the device, and none from the host."""
    packer = Async(min_bytes=0, link=lambda device: slow(Clock()))
    handle = packer.pack(torch.ones(ELEMENTS))
    for _ in range(3):
        assert packer.unpack(handle).sum() == ELEMENTS
    assert not packer.counters()["bytes_back"]


def test_change_in_flight_is_an_error():
    """Elements that were changed while they went out are refused, on the device and on the host, then and later."""
    clock = Clock()
    packer = Async(min_bytes=0, link=lambda device: slow(clock))
    tensor = torch.ones(ELEMENTS)
    handle = packer.pack(tensor)
    tensor.add_(1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            packer.unpack(handle)
        clock.sleep(10)


def test_change_after_landing_is_harmless():
    """Once the copy is over the source may change: what went out is what comes back."""
    clock = Clock()
    packer = Async(min_bytes=0, link=lambda device: slow(clock))
    tensor = torch.ones(ELEMENTS)
    first = packer.pack(tensor)
    clock.sleep(10)
    packer.pack(torch.ones(ELEMENTS))
    tensor.add_(1)

    assert packer.unpack(first).sum() == ELEMENTS


def test_dropped_graph_waits_for_nothing_and_gives_all_back():
    """When the last elements are not wanted any more, the copies under way end and their sources go."""
    clock = Clock()
    packer = Async(min_bytes=0, link=lambda device: slow(clock))
    tensor = torch.ones(ELEMENTS)
    gone, handle = weakref.ref(tensor), packer.pack(tensor)
    del tensor, handle

    assert gone() is None
    assert not packer.links.scheduler(CPU).held()


def test_emulated_link_in_real_time():
    """The worker of each direction makes the copies, in its own time, and passes on what goes wrong in them."""
    packer = Async(min_bytes=0, link=lambda device: emulated(1e8))
    model, x = mlp()
    strategy = SimpleNamespace(wrap=lambda model: model, context=lambda: packer)

    assert same(step(model, x)[0], step(model, x, strategy)[0])
    packer.close()

    lane = EmulatedLane(1e9)
    failed = lane.send(1, partial(divmod, 1, 0))
    with pytest.raises(ZeroDivisionError):
        failed.wait()
    assert failed.done()
    lane.close()
    assert not lane._worker.is_alive()


def test_link_of_the_cpu_is_over_at_once():
    """Between the CPU and itself nothing is in flight, and no memory is kept between steps."""
    packer = AsyncAll()
    handle = packer.pack(torch.ones(8))
    scheduler = packer.links.scheduler(CPU)

    assert scheduler._link.arena.nbytes() == 0
    assert scheduler.held() == 0
    assert packer.unpack(handle).sum() == 8
