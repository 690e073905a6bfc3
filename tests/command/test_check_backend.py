"""`hooklaw check-backend` as its user runs it, and backends that misbehave while they are loaded."""

import json

import pytest

from helpers import DATA, TOY_RULES
from hooklaw.results import records


def test_sound_and_wrong(hooklaw):
    """A fault makes the exit code 1, and each report is printed."""
    done = hooklaw("check-backend", "toy:backend", "wrong_adapters:ShapeIsAList", path=[DATA])

    assert (done.returncode, done.stderr) == (1, "")
    assert "toy:backend (toy 1.0.0+plain): no fault in the adapter" in done.stdout
    assert "mend      return a tuple of Python's int: tuple(tensor.shape)" in done.stdout


def test_json(hooklaw):
    """As JSON each fault is an object."""
    done = hooklaw("check-backend", "wrong_adapters:EverythingIsATensor", "--format=json", path=[DATA])
    (report,) = json.loads(done.stdout)

    assert (done.returncode, report["ok"]) == (1, False)
    assert report["faults"][0]["what"] == "is_tensor"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("toy:backend:absent", "backend 'toy:backend:absent' cannot be checked here: no toy box on this machine"),
        ("nowhere:backend", "backend 'nowhere:backend': cannot import module nowhere: ModuleNotFoundError"),
    ],
)
def test_not_loaded(hooklaw, spec, said):
    """A backend that cannot be loaded makes the exit code 3, with one sentence."""
    done = hooklaw("check-backend", spec, path=[DATA])

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"hooklaw: {said}")


def test_a_probe_that_ends_the_process_is_named(hooklaw, adapter, tmp_path):
    """A verb that kills the process costs its own probe, and the others are run."""
    adapter(
        "import os\nclass Mine(Toy):\n    def register_hook(self, tensor, hook):\n        os._exit(3)\nmade = Mine()\n"
    )

    done = hooklaw("check-backend", "broken:made", path=[DATA, tmp_path], apart=True)

    assert done.returncode == 1
    assert "the process died without a word" in done.stdout
    assert "  FAULT    tensor-hooks" in done.stdout


NASTY = """
import os, signal, sys, threading, time
print("x" * 3_000_000)
os.chdir("/")
signal.signal(signal.SIGINT, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(1000,), daemon=True, name="left").start()
"""


def test_what_is_left_behind_is_recorded(hooklaw, adapter, tmp_path):
    """A loud backend that moves, handles signals and leaves a thread is judged, and its record says so."""
    adapter(NASTY)
    both = ("--backend", "broken:backend", "--backend", "toy:backend")

    done = hooklaw("run", *both, "--rules", TOY_RULES, "--results=r.jsonl", path=[DATA, tmp_path], apart=True)
    nasty, calm = records.read(tmp_path / "r.jsonl")

    assert len(done.stdout) < 10_000
    left = "changed the working directory to /; replaced the handler of SIGINT; left 1 running: the threads left; "
    assert nasty.header.notes["left behind"] == left + "printed 3 MB"
    assert "left behind" not in calm.header.notes
    assert [each.outcome for each in nasty.results.values()] == [each.outcome for each in calm.results.values()]
