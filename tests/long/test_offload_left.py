"""What a strategy leaves behind: no memory, no file, no thread, no change to the model, and clear errors on the way."""

import contextlib
import errno
import gc
import os
import stat
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hooklaw_backends.offload import disk as disk_family  # noqa: E402 - needs torch
from hooklaw_backends.offload import find  # noqa: E402 - idem
from hooklaw_backends.offload.asynchronous import Async, AsyncAll  # noqa: E402 - idem
from hooklaw_backends.offload.disk import DiskRaw, DiskSave, Spill  # noqa: E402 - idem
from hooklaw_backends.offload.link import EmulatedLane, LaneLink  # noqa: E402 - idem
from hooklaw_backends.offload.on_cpu import CheckedCopy  # noqa: E402 - idem
from hooklaw_backends.offload.plain import KeepAll  # noqa: E402 - idem
from offload_models import cubes, leaf, mlp, packed, step  # noqa: E402 - idem

PACKERS = [KeepAll, CheckedCopy, DiskRaw, DiskSave, AsyncAll]


@pytest.fixture(scope="module", autouse=True)
def _others_set_aside():
    """Set aside the objects of all tests and of torch: to look through them for garbage takes half a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def emulated(rate):
    """Return a link that takes its time."""
    return LaneLink(EmulatedLane(rate), EmulatedLane(rate))


@pytest.mark.parametrize("make", PACKERS)
@pytest.mark.parametrize("end", ["dropped", "done", "raised"])
def test_nothing_is_left_of_a_graph(make, end):
    """Whether a graph is run, dropped, or never finished, nothing that was packed for it lives on."""
    packer, x = make(), leaf()
    with contextlib.suppress(KeyError), packer:
        y = (x * 2).exp()  # which saves its own result: a handle that held it would hold the graph, and itself
        gone = weakref.ref(y)
        loss = y.pow(3).sum()
        {}["missing"] if end == "raised" else None
    if end == "done":
        loss.backward()
    del loss, y
    gc.collect()

    assert gone() is None
    assert not list(packer._parcels) + list(packer._stayed)
    if isinstance(packer, Async):
        assert not packer.links.scheduler(torch.device("cpu"))._line


def test_no_file_has_a_name(tmp_path):
    """The file cannot be found while it is in use, is its owner's only, and is used again by the next step."""
    packer, x = DiskRaw(str(tmp_path)), leaf()
    for _ in range(3):
        loss = packed(packer, x)

        assert packer.disk.file_bytes() == x.nbytes
        assert not list(tmp_path.iterdir())
        loss.backward()
    mode = os.fstat(packer.disk._spill._descriptor).st_mode

    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize("make", [DiskRaw, DiskSave])
def test_only_what_was_saved_is_written(make):
    """Of a tensor that is a small part of a large storage, the part is written."""
    packer = make()
    handle = packer.pack(torch.ones(1 << 20)[:16])

    assert packer.disk.file_bytes() < 1 << 12
    assert packer.unpack(handle).sum() == 16


def test_graph_outlives_its_closed_packer():
    """A strategy may be closed while a graph of it is alive: the file and the workers are there as long as it needs."""
    for packer in (DiskRaw(), Async(min_bytes=0, link=lambda device: emulated(1e9))):
        x = leaf()
        loss = packed(packer, x)
        packer.close()
        loss.backward()

        assert cubes(x)


def test_child_process_does_not_write_into_its_parents_file(monkeypatch):
    """After a fork the child has a file of its own."""
    packer = DiskRaw()
    first = packer.pack(torch.zeros(8))
    parents, pid = packer.disk._spill, os.getpid()
    monkeypatch.setattr(disk_family.os, "getpid", lambda: pid + 1)
    second = packer.pack(torch.ones(8))

    assert packer.disk._spill is not parents
    assert [packer.unpack(one).sum() for one in (first, second)] == [0, 8]


def fills_up(monkeypatch, room):
    """Let the disk be full after so many bytes."""
    write, left = os.pwrite, [room]

    def pwrite(descriptor, data, offset):
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data[: left[0]]
        left[0] -= len(taken)
        return write(descriptor, taken, offset)

    monkeypatch.setattr(disk_family.os, "pwrite", pwrite)


@pytest.mark.parametrize("make", [DiskRaw, DiskSave])
def test_full_disk_is_one_clear_error(make, monkeypatch, tmp_path):
    """Where the disk fills up, forward raises what is missing and where, and all that was written is given back."""
    packer, x = make(str(tmp_path)), leaf()
    fills_up(monkeypatch, 10_000)
    said = "cannot be written below .*No space left on device; free some room"
    with pytest.raises(OSError, match=said) as caught, packer:
        (x * 2).pow(3).exp().sum()
    assert caught.value.errno == errno.ENOSPC
    spill = packer.disk._spill
    del caught
    gc.collect()

    assert spill.nbytes() == 0
    monkeypatch.undo()
    packed(packer, x).backward()
    assert cubes(x)


def test_folder_that_cannot_be_written(tmp_path):
    """A folder that is not there is named in the error."""
    with pytest.raises(OSError, match="gone.*No such file or directory"):
        Spill(str(tmp_path / "gone"))


def test_disk_save_reads_no_pickle(monkeypatch):
    """What torch.save wrote is loaded as tensors only."""
    seen = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **how: (seen.append(how), load(*args, **how))[1])
    packer = DiskSave()
    packer.unpack(packer.pack(torch.ones(4)))

    assert seen == [{"weights_only": True}]


def test_nothing_is_written_where_the_user_is(tmp_path, monkeypatch):
    """No strategy leaves a file in the current folder or in the one for temporary files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(disk_family.tempfile, "tempdir", str(tmp_path))
    for spec in ("disk-raw", "disk-save", "fraction:0.5+disk-raw"):
        model, x = mlp()
        step(model, x, find(spec))

        assert not list(tmp_path.iterdir())
