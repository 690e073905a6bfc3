"""The benchmark: what a run leaves, marked cells, resuming, comparing. No figure in seconds is asserted."""

import json
import os
import runpy
import signal
import statistics
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import ANY

import msgspec
import pytest

from conftest import ROOT, environment_with
from helpers import DATA, complaint
from hooklaw.cli import bench
from hooklaw.errors import BenchError
from hooklaw.offload import comparing
from hooklaw.offload._cell_worker import kept
from hooklaw.offload._worker import CellService, CellSettings
from hooklaw.offload.plan import QUICK, STRATEGIES, Plan, cells, quick
from hooklaw.results.records import Cell, key_of, read
from hooklaw.results.verdict import Outcome
from made_records import cell, measured, write

torch = pytest.importorskip("torch", reason="torch is not installed")

SCRIPT = ROOT / "tools" / "bench_cuda.py"
SHIPPED = ("none", "disk-raw", "checkpoint:2", "bf16")
VICES = {
    "Raises": (Outcome.ERROR, "ValueError: not this tensor"),
    "Hangs": (Outcome.TIMEOUT, "did not end within 8 s"),
    "FillsDisk": (Outcome.ERROR, "the disk is full"),
    "EatsMemory": (Outcome.ERROR, "out of memory"),
    "Wrong": (Outcome.FAIL, "wrong gradients: off by"),
    "WrongLater": (Outcome.FAIL, "wrong gradients: off by"),
    "NotFinite": (Outcome.FAIL, "wrong gradients: one is missing, has another shape, or is not finite"),
    "Counts": (Outcome.FAIL, "the model's buffers are not those of the plain step"),
    "Dies": (Outcome.CRASH, "the process died of signal 9"),
    "Claims": (Outcome.FAIL, "bytes went to disk, and the process wrote"),
    "Leaves": (Outcome.PASS, ""),
}


def named(strategies, *further):
    """Write the words of a command that measures these strategies on the tiny network."""
    return ["bench", "--workload", "tiny", *(f"--strategy={one}" for one in strategies), *further]


@pytest.fixture(scope="module")
def shipped(hooklaw_command, tmp_path_factory):
    """Measure a few shipped strategies once, and return the process and its files' folder."""
    folder = tmp_path_factory.mktemp("bench")
    files = [f"--{name}={folder / name}" for name in ("results", "json")]
    return hooklaw_command(*named(SHIPPED, "--rounds=2", *files), apart=True), folder


@pytest.fixture(scope="module")
def bad(hooklaw_command, tmp_path_factory):
    """Measure all bad strategies once, and return their cells by name, and their folder."""
    folder = tmp_path_factory.mktemp("bad")
    specs = [f"bad_strategies:{name}" for name in VICES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("LEFT", str(folder / "left"))
        args = named(specs, "--rounds=1", "--limit=8", "--results", folder / "results")
        done = hooklaw_command(*args, path=[DATA], timeout=300, apart=True)
    assert done.returncode == 1, done.stderr
    return {one.strategy.partition(":")[2]: one for one in read(folder / "results")[0].cells}, folder


# a run
def test_a_run_leaves_a_record_of_every_cell(shipped):
    """The record is complete, and every figure in it is one that can be."""
    done, folder = shipped
    found = read(folder / "results")[0]

    assert done.returncode == 0, done.stderr
    assert found.complete
    assert found.header.title == "bench:cpu"
    assert found.header.notes == {"rounds": "2", "malloc": kept()}
    assert [one.strategy for one in found.cells] == [*SHIPPED]
    for one in found.cells:
        assert one.outcome is Outcome.PASS
        assert one.rounds == 2
        assert one.step == pytest.approx(one.forward + one.backward, rel=0.9)
        assert 0 < one.ratio_q1 <= one.ratio <= one.ratio_q3
        assert one.floor > 0
        assert one.efficiency == pytest.approx(one.floor / one.step)
        assert one.buffers_equal
        assert one.plain_error64 < 1e-4


def test_figures_tell_the_strategies_apart(shipped):
    """What is offloaded is away after forward; lossless strategies have no error, and a lossy one has."""
    cells = {one.strategy: one for one in read(shipped[1] / "results")[0].cells}
    plain, disk, bf16, again = (cells[name] for name in ("none", "disk-raw", "bf16", "checkpoint:2"))

    assert disk.after_forward < plain.after_forward / 100
    assert disk.peak < plain.peak
    assert again.after_forward < plain.after_forward / 10
    assert disk.out == disk.host < disk.packed
    assert disk.out + disk.deduplicated == disk.back
    assert disk.ceiling > disk.rate > 0
    assert plain.packs == plain.out == 0
    assert plain.error == disk.error == again.error == 0
    assert disk.error64 == plain.error64 == plain.plain_error64 > 0
    assert not bf16.lossless
    assert 0 < bf16.error < 0.05


def test_the_terminal_shows_progress_a_table_and_an_answer(shipped):
    """Progress goes to stderr, a line for each cell; stdout has the table and the sentences."""
    done, _ = shipped

    assert "4/4 tiny bf16" in done.stderr
    assert done.stdout.startswith("tiny: ")
    assert "ratio [q1-q3]" in done.stdout
    assert "To fit in " in done.stdout


def ratio_of(entry):
    """Return the median ratio of the rounds that pytest-benchmark's JSON has."""
    pairs = zip(entry["stats"]["data"], entry["extra_info"]["plain"], strict=True)
    return statistics.median(own / plain for own, plain in pairs)


def test_pytest_benchmark_writes_the_same_cells(shipped):
    """The JSON is pytest-benchmark's own: its rounds are those of our cells, which stand in it too."""
    found = json.loads((shipped[1] / "json").read_text())
    cells = read(shipped[1] / "results")[0].cells

    assert [msgspec.convert(one["extra_info"], Cell) for one in found["benchmarks"]] == cells
    assert msgspec.convert(found["hooklaw"]["cells"], list[Cell]) == cells
    assert [statistics.median(one["stats"]["data"]) for one in found["benchmarks"]] == [one.step for one in cells]
    assert [ratio_of(one) for one in found["benchmarks"]] == [one.ratio for one in cells]
    assert {one["group"] for one in found["benchmarks"]} == {"tiny"}


def test_cells_run_under_plain_pytest(tmp_path):
    """The cells are ordinary benchmarks, chosen with -k."""
    command = [sys.executable, "-m", "pytest", "-p", "pytest_benchmark.plugin", "-p", "no:cacheprovider", "-q"]
    command += ["-c", ROOT / "conformance" / "hooklaw" / "pytest.ini", "--rootdir", tmp_path, "-k", "mlp-none"]
    command += ["--pyargs", "hooklaw.offload.bench_cells", "--benchmark-json=out.json"]
    environment = {**environment_with([]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=120, capture_output=True, check=False)

    assert done.returncode == 0, done.stdout.decode()
    [entry] = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    assert msgspec.convert(entry["extra_info"], Cell).workload == "mlp"


def test_compare_reads_pytest_benchmark_s_json(shipped):
    """The two files of one run are the same run."""
    _, folder = shipped
    found = comparing.compare(comparing.load(folder / "json"), comparing.load(folder / "results"))

    assert [pair.change for pair in found.pairs] == [""] * len(SHIPPED)


# marked cells
@pytest.mark.parametrize(("name", "expected"), VICES.items())
def test_a_bad_strategy_marks_its_own_cell_only(bad, name, expected):
    """Whatever a strategy does, its cell says so, and the cells after it are measured."""
    found = bad[0][name]

    assert (found.outcome, found.detail[: len(expected[1])]) == expected or expected[1] in found.detail
    assert found.outcome is expected[0]


def test_nothing_is_left_in_the_temporary_folder(bad):
    """What a strategy wrote to the temporary folder went with its worker, also where the worker died."""
    _, folder = bad

    assert not os.path.exists((folder / "left").read_text())  # noqa: PTH110 - the text of a path that is gone
    assert sorted(one.name for one in folder.iterdir() if one.name.startswith("hooklaw-")) in ([], ["hooklaw-0"])


# visits
def test_a_cell_is_visited_again(hooklaw, tmp_path):
    """A worker comes back to each cell: the record has all rounds, pytest-benchmark's JSON each visit by itself."""
    files = [f"--{name}={tmp_path / name}" for name in ("results", "json")]
    done = hooklaw(*named(["none", "disk-raw"], "--rounds=5", *files))
    cells = read(tmp_path / "results")[0].cells
    found = json.loads((tmp_path / "json").read_text())

    assert done.returncode == 0, done.stderr
    assert [one.rounds for one in cells] == [5, 5]
    assert cells[1].packs > 0  # which the first visit counted
    assert cells[1].efficiency == pytest.approx(cells[1].floor / cells[1].step)
    assert [one["name"] for one in found["benchmarks"]] == [
        f"test_cell[tiny-{name}-fp32{again}]" for again in ("", "-again1") for name in ("none", "disk-raw")
    ]
    assert [one["stats"]["rounds"] for one in found["benchmarks"]] == [2, 2, 3, 3]
    assert [one["extra_info"]["rounds"] for one in found["benchmarks"]] == [2, 2, 5, 5]
    assert msgspec.convert(found["hooklaw"]["cells"], list[Cell]) == cells
    assert [line.split(":")[0].strip() for line in done.stderr.splitlines()[1:]] == [
        "1/2 tiny none",
        "2/2 tiny disk-raw",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Wrong", (Outcome.FAIL, 2, "wrong gradients")),
        ("WrongAgain", (Outcome.FAIL, 4, "wrong gradients")),
        ("DiesAgain", (Outcome.CRASH, 2, "the process died of signal 9")),
    ],
)
def test_a_marked_cell_is_not_visited_again(hooklaw_command, tmp_path, name, expected):
    """What breaks in any visit marks the cell, ends its visits, and costs the cells beside it nothing."""
    words = named([f"bad_strategies:{name}", "none"], "--rounds=6", "--results", tmp_path / "r.jsonl")
    done = hooklaw_command(*words, path=[DATA], timeout=300)
    plain, bad = read(tmp_path / "r.jsonl")[0].cells

    assert done.returncode == 1, done.stderr
    assert (plain.strategy, plain.outcome, plain.rounds) == ("none", Outcome.PASS, 6)
    assert (bad.outcome, bad.rounds) == expected[:2]
    assert expected[2] in bad.detail


def test_a_terminal_shows_every_visit(capfd):
    """The line is rewritten at each visit; elsewhere a line tells that a cell is over."""
    plan, both = Plan(rounds=4), [cell("none", 10, 1.0), cell("async", 10, 1.2)]
    marked = cell("bf16", 0, 0, outcome=Outcome.ERROR)
    session = SimpleNamespace(cells=[1, 2, 3], left=lambda: [1, 2, 3], plan=plan)
    said = {}
    for live in (True, False):
        progress = bench.BenchmarkProgress()
        progress._live = live
        progress.start(session)
        for one, visit in ((both[0], 0), (marked, 0), (both[1], 0), (both[0], 1), (both[1], 1)):
            progress.step(one, visit)
        progress.end()
        said[live] = capfd.readouterr().err.replace("\r\x1b[K", "\n").split("\n")

    assert said[True][2:7] == [
        "    0/3 conv none: 1.00 x, visit 1 of 2",
        "    1/3 conv bf16: error",
        "    1/3 conv async: 1.20 x, visit 1 of 2",
        "    2/3 conv none: 1.00 x",
        "    3/3 conv async: 1.20 x",
    ]
    assert said[False][1:4] == ["    1/3 conv bf16: error", "    2/3 conv none: 1.00 x", "    3/3 conv async: 1.20 x"]


def test_a_cell_with_too_few_rounds_is_measured_again(hooklaw, tmp_path):
    """A run that was ended between two visits has cells with some of their rounds; going on takes all of them."""
    words = named(["none", "disk-raw"], "--results", tmp_path / "r.jsonl")
    assert hooklaw(*words, "--rounds=2").returncode == 0
    again = hooklaw(*words, "--rounds=4", "--resume")
    [found] = read(tmp_path / "r.jsonl")

    assert again.returncode == 0, again.stderr
    assert [(one.strategy, one.rounds) for one in found.cells] == [("none", 4), ("disk-raw", 4)]
    assert hooklaw(*words, "--rounds=4", "--resume").returncode == 0
    assert read(tmp_path / "r.jsonl")[0].cells == [msgspec.structs.replace(one, run=ANY) for one in found.cells]


# resuming
@pytest.mark.skipif(not SCRIPT.exists(), reason="tools/ stands in the repository only, not in an sdist")
def test_the_script_goes_on_where_it_was_killed(tmp_path):
    """After a kill the record has all finished cells; the second start measures the others, and keeps these."""
    results = tmp_path / "r.jsonl"
    command = [sys.executable, SCRIPT, "--tiny", "--rounds=1", "--results", results]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        process.kill()
    before = read(results, incomplete=True)[0]
    again = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True, check=False)
    after = read(results)[0]

    assert [json.loads(line)["strategy"] for line in lines[1:]] == [one.strategy for one in before.cells[:2]]
    assert not before.complete
    assert again.returncode == 0, again.stderr
    assert f"{6 - len(before.cells)} of 6 cells are left to measure" in again.stdout
    assert [key_of(one) for one in after.cells[: len(before.cells)]] == [key_of(one) for one in before.cells]
    assert [one.step for one in after.cells[: len(before.cells)]] == [one.step for one in before.cells]
    assert len(after.cells) == 6
    deadline = time.monotonic() + 60
    while list(tmp_path.glob("hooklaw-*")) and time.monotonic() < deadline:
        time.sleep(0.1)  # the worker of the killed process is about to find that nobody is there
    assert not list(tmp_path.glob("hooklaw-*"))


@pytest.mark.skipif(not SCRIPT.exists(), reason="tools/ stands in the repository only, not in an sdist")
def test_the_script_s_cuts_need_as_little_as_they_are_to():
    """Memory grows with the batch, so small batches on the CPU tell what 256 samples need of 7 GB on a device."""
    given = runpy.run_path(str(SCRIPT))
    assert all(f"{given['FINE']}+" in name for name in given["MEMORY"][4:7])

    assert at_256(f"{given['FINE']}+disk-raw") < 6.4e9
    assert 8e9 < at_256(given["STAGES"]) < 9e9


def at_256(strategy):
    """Return the peak with 256 pictures of 224 pixels, for which 3,136 of 64 pixels stand."""
    from hooklaw.offload.steps import Stepper
    from hooklaw.offload.workloads import RESNET152, Workload, resnet
    from hooklaw_backends.offload import find

    def peak(many):
        given = torch.randn(many, 3, 64, 64), torch.arange(many), torch.nn.CrossEntropyLoss()
        return Stepper(Workload(resnet(RESNET152), *given), "fp32", find(strategy)).measured().peak

    few, more = peak(12), peak(24)
    return few + (more - few) * (256 * 49 / 4 - 12) / 12


def test_nothing_is_taken_over_from_another_machine(hooklaw, tmp_path):
    """A record of another device or torch is neither mixed with new cells nor lost."""
    old = write(tmp_path / "r.jsonl", measured(cell("none", workload="tiny")))
    text = old.read_text()
    done = hooklaw("bench", "--workload=tiny", "--strategy=none", "--resume", "--results", old)

    assert done.returncode == 3
    assert "was measured with another torch and another device: name a new file" in complaint(done)
    assert old.read_text() == text


def test_a_terminated_run_says_so_and_keeps_its_cells(tmp_path):
    """SIGTERM ends a run as Ctrl-C does: one sentence, exit code 3, an interrupted record, nothing left behind."""
    words = named(["none", "bad_strategies:Hangs"], "--rounds=1", "--results", tmp_path / "r.jsonl")
    environment = {**environment_with([DATA]), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "hooklaw", *map(str, words)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        seen = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    found = read(tmp_path / "r.jsonl", incomplete=True)[0]

    assert "1/2 tiny none" in seen[1]
    assert process.returncode == 3
    assert rest.splitlines()[-1].startswith("hooklaw: interrupted, 1 of 2 cells are measured")
    assert found.footer.interrupted
    assert [one.strategy for one in found.cells] == ["none"]
    assert not list(tmp_path.glob("hooklaw-*"))


def test_an_interrupted_run_says_what_is_measured_in_part(tmp_path):
    """A cell that still has visits before it is in the record, with the rounds it has, and is no measured one."""
    words = named(["none", "bad_strategies:HangsAgain"], "--rounds=4", "--results", tmp_path / "r.jsonl")
    command = [sys.executable, "-m", "hooklaw", *map(str, words)]
    with subprocess.Popen(command, env=environment_with([DATA]), stderr=subprocess.PIPE, text=True) as process:
        seen = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    found = read(tmp_path / "r.jsonl", incomplete=True)[0]

    assert "1/2 tiny none" in seen[1]
    assert rest.splitlines()[-1].startswith("hooklaw: interrupted, 1 of 2 cells are measured, 1 in part; --resume")
    assert [(one.strategy, one.rounds) for one in found.cells] == [("none", 4), ("bad_strategies:HangsAgain", 2)]


# bad input
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload=vgg"], "no workload is called 'vgg'"),
        (["--workload=mlp", "--workload=mlp"], "a workload is named twice"),
        (["--strategy=none", "--strategy=none"], "a strategy is named twice"),
        (["--device=cuda", "--clock=cpu"], "--clock cpu sees nothing of what cuda does"),
        (["--rounds=0"], "argument --rounds: invalid rounds value: '0'"),
        (["--batch=x"], "argument --batch: invalid batch value: 'x'"),
        (["--resume"], "name it with --results=FILE"),
        (["--results=a", "--json=a"], "two of --results, --report and --json name the same file"),
        (["--report=/dev/null"], "cannot write to /dev/null"),
        (["compare", "one"], "write `hooklaw bench compare OLD NEW`"),
        (["compare", "no-such", "either"], "cannot read no-such"),
    ],
)
def test_bad_input_is_one_sentence(verb, words, said):
    """What cannot be is said before anything runs, with exit code 3."""
    done = verb("bench", *words)

    assert done.returncode == 3
    assert said in complaint(done)


def test_a_wrong_strategy_is_one_sentence(hooklaw, tmp_path):
    """The worker knows the strategies, so it is asked first; no file is written."""
    done = hooklaw("bench", "--workload=tiny", "--results=r.jsonl", "--strategy=disk-row")

    assert done.returncode == 3
    assert "no strategy is called 'disk-row': did you mean disk-raw" in complaint(done)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"module": "no_such_module"}, "the strategies' module no_such_module does not import"),
        ({"device": "no-such-device"}, "--device no-such-device: "),
    ],
)
def test_a_worker_says_what_it_cannot_do(parts, said):
    """A module or a device that is not there is one sentence."""
    given = {"module": STRATEGIES, "strategies": (), "device": "cpu"}
    with pytest.raises(BenchError, match=said):
        CellService(CellSettings(**(given | parts))).hello()


# the plan
def test_the_plain_step_comes_first():
    """All cells of a workload follow each other, the plain step before the others."""
    plan = Plan(workloads=("mlp", "conv"), strategies=("async", "none"))

    assert [one.name for one in cells(plan, [])] == ["mlp-none", "mlp-async", "conv-none", "conv-async"]


def test_quick_is_few_strategies_and_few_rounds():
    """A strategy that was named is not replaced."""
    assert quick(Plan()).strategies == QUICK
    assert quick(Plan(strategies=("async",))).strategies == ("async",)
    assert quick(Plan()).rounds < Plan().rounds
    assert quick(Plan(most=18)).span == "3"


# the measuring
def test_resnet152_is_resnet152():
    """Built by hand, it has the parameters of the one that everybody measures, and its fifty blocks are children."""
    from hooklaw.offload.workloads import RESNET152, resnet

    with torch.device("meta"):
        model = resnet(RESNET152)

    assert sum(one.numel() for one in model.parameters()) == 60_192_808
    assert len(model) == 52


@pytest.mark.parametrize("name", ["conv", "mlp", "transformer", "tiny", "chain"])
def test_every_parameter_of_a_workload_has_a_gradient(name):
    """No workload has a loss that does not depend on its parameters: then no strategy could be wrong."""
    from hooklaw.offload.steps import Stepper
    from hooklaw.offload.workloads import build

    stepper = Stepper(build(name, batch=4), "fp32")
    stepper.step()

    for gradient, parameter in zip(stepper.gradients(), stepper.model.parameters(), strict=True):
        assert gradient.norm() > 1e-5 * parameter.norm()


def test_memory_is_the_allocator_s_exact_sum():
    """What stands after forward is what is saved, to the byte."""
    from hooklaw.offload.steps import Stepper
    from hooklaw.offload.workloads import Workload

    layers = [torch.nn.Linear(64, 64, bias=False) for _ in range(2)]
    model, target = torch.nn.Sequential(*layers), torch.zeros(8, 64).double()
    found = Workload(model, torch.randn(8, 64), target, lambda output, target: (output * target).sum())
    memory = Stepper(found, "fp32").measured()

    between, loss, gradients = 8 * 64 * 4, 8, 2 * 64 * 64 * 4
    assert memory.after_forward == between + loss
    assert memory.peak > memory.after_forward + gradients


class FakeEvent:
    """An event of a device that computes at once."""

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        """Note the moment."""
        self.moment = time.perf_counter()

    def elapsed_time(self, other):
        """Return milliseconds, as CUDA does."""
        return (other.moment - self.moment) * 1000


def test_the_steps_of_a_device_are_walked_without_one(monkeypatch):
    """On CUDA a step is synchronized, forward ends with an event, and the allocator's own figures count."""
    from hooklaw.offload.steps import Stepper
    from hooklaw.offload.workloads import build

    given = {"memory_allocated": 5, "max_memory_allocated": 9, "max_memory_reserved": 11}
    given |= {"host_memory_stats": {"allocated_bytes.peak": 3}, "synchronize": None, "empty_cache": None}
    given |= {"reset_peak_memory_stats": None, "reset_peak_host_memory_stats": None}
    for name, value in given.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    stepper = Stepper(build("tiny"), "amp")
    stepper._cuda = True
    times = stepper.timed()

    assert 0 < times.forward < times.step
    assert stepper.measured() == (4, 0, 11, 3)


def test_distances_of_gradients():
    """A gradient that is missing or not finite is further away than any number, and nothing is 0 away from itself."""
    from hooklaw.offload._gradients import NOWHERE, complaint, distance

    one = torch.ones(4)

    assert distance([one, None], [one, None]) == 0
    assert distance([one * 3], [one]) == 2
    assert distance([None], [one]) == distance([one * torch.nan], [one]) == distance([one[:2]], [one]) == NOWHERE
    assert not complaint(0.0, lossless=True, tolerance=0.0, noise=0.0)
    assert complaint(1e-9, lossless=True, tolerance=1.0, noise=0.0)
    assert not complaint(0.1, lossless=False, tolerance=0.2, noise=0.0)
