"""Where offloaded bytes lie: exact arenas, extents, pinned memory, and the order of copies on a CUDA device."""

import contextlib
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hooklaw_backends.offload import find  # noqa: E402 - needs torch
from hooklaw_backends.offload.arena import Arena, pageable, pinned  # noqa: E402 - idem
from hooklaw_backends.offload.cuda_link import CudaLink  # noqa: E402 - idem
from hooklaw_backends.offload.extents import Extents  # noqa: E402 - idem
from offload_models import mlp, same, step  # noqa: E402 - idem


def test_arena_takes_exactly_what_is_needed():
    """Blocks are whole pages, not powers of two, and the second step takes no new memory."""
    arena = Arena(pageable)
    for _ in range(3):
        slots = [arena.take(nbytes) for nbytes in (5000, 100_000, 4096)]
        assert arena.nbytes() == 8192 + 102_400 + 4096
        del slots


def test_arena_in_one_piece():
    """What was given back is cut into blocks, and the blocks become one piece again."""
    arena = Arena(pageable)
    arena.take(10 * 4096)
    slots = [arena.take(4096 * n) for n in (1, 2, 3, 4)]
    assert sorted(slot.start for slot in slots) == [0, 4096, 3 * 4096, 6 * 4096]
    del slots

    assert arena.take(10 * 4096).start == 0
    assert arena.nbytes() == 10 * 4096


def test_extents_find_the_smallest_hole():
    """A stretch is taken from the smallest hole that holds it; neighbours that are free become one."""
    space = Extents(100)
    first, second, third = space.take(50), space.take(10), space.take(40)
    space.give(first, 50)
    space.give(third, 40)
    assert space.take(30) == third
    space.give(second, 10)
    assert space.take(60) == first
    assert space.take(20) is None


class FakeCuda:
    """A `torch.cuda` that only writes down what it is asked for."""

    def __init__(self):
        self.log, self.streams = [], 0
        self.current = self.Stream("cpu")

    def Stream(self, device):  # noqa: D102, N802 - torch's name
        name, self.streams = f"stream{self.streams}", self.streams + 1
        note = self.log.append
        return SimpleNamespace(
            name=name,
            device=device,
            wait_stream=lambda other: note(f"{name} waits for {other.name}"),
            record_event=lambda: note(f"{name} records") or SimpleNamespace(query=lambda: True),
            wait_event=lambda event: note(f"{name} waits for the event"),
            synchronize=lambda: note(f"{name} is waited for"),
        )

    def current_stream(self, device):  # noqa: D102 - idem
        return self.current

    def stream(self, stream):  # noqa: D102 - idem
        self.log.append(f"on {stream.name}")
        return contextlib.nullcontext()


def test_cuda_copies_are_ordered_by_events():
    """A copy begins after the computation so far, on its own stream, and the computation waits for its event."""
    cuda = FakeCuda()
    link = CudaLink("cpu", cuda, Arena(pageable))
    source, target = torch.arange(4.0), torch.zeros(4)
    slot = link.arena.take(16)
    out = link.out(source, slot)
    assert out.done()
    out.wait()
    assert cuda.log == ["stream1 waits for stream0", "on stream1", "stream1 records", "stream0 waits for the event"]

    cuda.log.clear()
    link.back(slot, target).wait()
    assert cuda.log == ["stream2 waits for stream0", "on stream2", "stream2 records", "stream0 waits for the event"]
    assert torch.equal(target, source)
    link.close()
    assert cuda.log[-2:] == ["stream1 is waited for", "stream2 is waited for"]


def test_cuda_memory_is_kept_for_the_stream_that_uses_it():
    """Where another stream takes what was fetched, it waits too, and the allocator hears of it."""
    cuda = FakeCuda()
    link = CudaLink("cpu", cuda, Arena(pageable))
    heard = []
    target = SimpleNamespace(
        dtype=torch.float32, numel=lambda: 4, nbytes=16, record_stream=heard.append, copy_=lambda *args, **how: None
    )
    copying = link.back(link.arena.take(16), target)
    cuda.current = cuda.Stream("cpu")
    cuda.log.clear()
    copying.wait()

    assert cuda.log == ["stream0 waits for the event", "stream3 waits for the event"]
    assert heard == [cuda.current]


def test_pinned_memory_is_registered_exactly_and_unregistered():
    """The driver is told of exactly the bytes asked for, and told again when the last view has gone."""
    calls = []
    runtime = SimpleNamespace(
        cudaHostRegister=lambda pointer, nbytes, flags: calls.append((pointer, nbytes)) or 0,
        cudaHostUnregister=calls.append,
    )
    arena = Arena(lambda nbytes: pinned(nbytes, runtime))
    slot = arena.take(5000)
    pointer, nbytes = calls[0]
    arena.close()
    assert (nbytes, len(calls)) == (8192, 1)
    assert pointer % 4096 == 0
    assert slot.tensor(torch.float64, 8).data_ptr() == pointer
    del slot

    assert calls[1:] == [pointer]
    with pytest.raises(RuntimeError, match="CUDA did not pin 4096 bytes"):
        pinned(4096, SimpleNamespace(cudaHostRegister=lambda *args: 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(
    "spec", ["async:min=1", "async:min=1,cap=4KiB,window=4KiB", "checkpoint:2+async:min=1", "disk-raw"]
)
def test_cuda_gradients(spec):
    """On a GPU the gradients are the plain step's, bit for bit where its kernels are deterministic."""
    model, x = mlp()
    model, x = model.cuda(), x.cuda()
    expected, found = step(model, x), step(model, x, find(spec))

    assert same(expected[0], found[0])
