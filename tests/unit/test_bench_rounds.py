"""Rounds of the benchmark: how many a cell gets, what warms it, and the memory that its steps find."""

import os
import platform
import statistics
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hooklaw.offload import _cell_worker, running
from hooklaw.offload._measurement import CLOCK, Measurement, measure
from hooklaw.offload._sampling import SECONDS, Round, Times, figures, further, needed, quartiles
from hooklaw.offload._worker import Closed, Inventory
from hooklaw.offload.benchmark import BenchmarkRun
from hooklaw.offload.plan import CellPlan, Plan
from hooklaw.results.verdict import Outcome

STEADY, SHAKY = [1.0, 1.01], [1.0, 1.0, 1.3, 1.3]
CELL = CellPlan(workload="mlp", strategy="async")
FAULTS = """
import resource, sys, torch
from hooklaw.offload.steps import Stepper
from hooklaw.offload.workloads import build

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    stepper.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
stepper = Stepper(build("conv"), "fp32")
print(*[faults() for _ in range(21)][6:])
before = len(sys.modules)
stepper.measured()
print(len(sys.modules) - before)
"""


class FakeWorker:
    """Takes steps that cost nothing, and says how long they took: plain ones a second, own ones as it was told."""

    inventory = Inventory({"async": ""}, {"torch": "2"}, "cpu", {})

    def __init__(self, own=(1.0,)):
        self.own = own
        self.taken = []

    def open(self, cell):
        """Begin a visit."""
        self.taken.clear()

    def take(self, *, plain):
        """Take a step."""
        self.taken.append("plain" if plain else "own")
        many = self.taken.count("own")
        return Times(1.0 if plain else self.own[many % len(self.own)], many / 100)

    def close_cell(self, *, account):
        """End the visit."""
        return Closed(Outcome.PASS, "", {"packs": 7, "error": 0.0} if account else {"error": 0.0})


class FakeFixture:
    """Takes rounds as pytest-benchmark does, with its timer."""

    def __init__(self):
        self.stats = SimpleNamespace(stats=SimpleNamespace(data=[]))

    def pedantic(self, target, *, setup, teardown, rounds, warmup_rounds):
        """Take rounds."""
        for at in range(warmup_rounds + rounds):
            setup()
            began = CLOCK()
            target()
            seconds = CLOCK() - began
            teardown()
            if at >= warmup_rounds:
                self.stats.stats.data.append(seconds)


def taken(own):
    """Return rounds with these ratios, of two seconds each."""
    return [Round(Times(1.0, 0.5), Times(one, 0.5)) for one in own]


@pytest.fixture
def started(monkeypatch):
    """Return a function that makes a benchmark of one cell with a made-up worker."""
    monkeypatch.setattr("hooklaw.offload.benchmark.CellWorker", lambda _: FakeWorker())
    return lambda **how: BenchmarkRun(Plan(workloads=("mlp",), strategies=("async",), **how))


# how many
@pytest.mark.parametrize(
    ("own", "most", "expected"), [(STEADY, 18, 0), (SHAKY, 18, 10), (SHAKY, 11, 3), (SHAKY, 0, 0), ([], 18, 0)]
)
def test_a_cell_gets_further_rounds_where_its_ratio_is_unsure(own, most, expected):
    """A steady ratio has enough with the usual rounds, a shaky one gets up to the most that are allowed."""
    assert further(Plan(rounds=8, most=most), 3, taken((own * 6)[:6]), seconds=99.0) == expected


def test_further_rounds_are_spread_over_the_visits():
    """An unsure cell takes in each visit an equal share of what is missing."""
    plan = Plan(rounds=8, most=20)

    assert [further(plan, visit, taken(SHAKY[:3] * 2), 99.0) for visit in (1, 2, 3)] == [3, 5, 12]


@pytest.mark.parametrize(("seconds", "limit", "expected"), [(4.5, 120.0, 2), (0.0, 120.0, 0), (99.0, 24.0, 3)])
def test_further_rounds_take_no_more_than_the_time_for_them(seconds, limit, expected):
    """Neither the machine's noise nor slow steps make a run endless, or run a cell into its limit."""
    assert further(Plan(rounds=8, most=20, limit=limit), 3, taken([1.0, 1.0, 1.0, 1.3, 1.3, 1.3]), seconds) == expected


def test_time_that_a_cell_does_not_need_is_left_to_the_next(started):
    """Each visit adds to the time for further rounds, and an unsure cell takes from it."""
    run = started(rounds=4, most=18)
    quick = [Round(Times(SECONDS / 9, 0), Times(SECONDS / 9 * one, 0)) for one in (1.0, 1.3)]
    spent = []
    for visit in range(2):
        spent.append(run.rounds(run.cells[0], visit))
        run.add(run.cells[0], visit, Measurement(quick, Closed(Outcome.PASS, "", {"error": 0.0})))

    assert spent == [2, 2 + 8]
    assert 0 < run._spare < SECONDS


def test_a_visit_is_skipped_where_nothing_is_left_to_do(started):
    """A marked cell is not visited again, and no visit begins when the time is over."""
    run = started(rounds=4)
    run.add(run.cells[0], 0, Measurement(taken(STEADY), Closed(Outcome.FAIL, "wrong", {"error": 1.0})))
    late = started(rounds=4)
    late._seconds = 1e-9

    assert run.rounds(run.cells[0], 1) == 0
    assert late.rounds(late.cells[0], 0) == 0


def test_needed_rounds_are_a_matter_of_the_quartiles():
    """One round is sure of itself, an outlier shakes nothing, and twice the distance takes four times the rounds."""
    assert quartiles([1.5]) == (1.5, 1.5, 1.5)
    assert needed([1.5]) == 0
    assert needed([1.0] * 8 + [9.0]) == 0
    assert needed([0.97, 1.03] * 5) == needed([0.97, 1.03] * 9) == 22
    assert needed([0.94, 1.06] * 9) == 87


@pytest.mark.parametrize(
    ("rounds", "device", "expected"),
    [(8, "cpu", [2, 2, 2, 2]), (9, "cpu", [2, 2, 2, 3]), (5, "cpu", [2, 3]), (3, "cpu", [3]), (8, "cuda", [8])],
)
def test_rounds_are_spread_over_visits(rounds, device, expected):
    """A machine may be slow for seconds, so a cell is looked at more than once; a device has no such neighbours."""
    plan = Plan(rounds=rounds, device=device)

    assert [plan.usual(visit) for visit in range(plan.visits)] == expected


def test_an_unsure_cell_on_a_device_is_visited_a_second_time():
    """There the second visit has further rounds only, and none for a sure cell."""
    plan = Plan(rounds=8, most=20, device="cuda")

    assert [plan.usual(visit) for visit in range(plan.visits)] == [8, 0]
    assert further(plan, 1, taken(SHAKY * 2), 99.0) == 12
    assert further(plan, 1, taken(STEADY * 4), 99.0) == 0


def test_the_floor_lets_bytes_stay_that_did_not_come_back():
    """What went out and was still there when it was asked for need not be out before backward."""
    rounds = [Round(Times(2.0, 1.0), Times(8.0, 4.0))]

    assert figures(rounds, (40, 40), (10.0, 10.0), recomputes=False)["floor"] == 8.0
    assert figures(rounds, (40, 30), (10.0, 10.0), recomputes=False)["floor"] == 6.0
    assert figures(rounds, (40, 50), (10.0, 10.0), recomputes=False)["floor"] == 8.0


# a visit
def test_every_round_has_both_steps_in_either_order():
    """A round is the plain step and the strategy's, and either may come first."""
    worker = FakeWorker(SHAKY)
    found = measure(FakeFixture(), worker, CELL, visit=0, rounds=18, account=True)
    pairs = [tuple(worker.taken[at : at + 2]) for at in range(0, len(worker.taken), 2)]

    assert set(pairs) == {("plain", "own"), ("own", "plain")}
    assert len(pairs) == len(found.rounds) == 18


def test_rounds_that_count_are_pytest_benchmark_s():
    """What warms up is left out, the seconds are those of pytest-benchmark, and each has the plain step beside it."""
    fixture, worker = FakeFixture(), FakeWorker([0.1, 0.2, 0.3, 0.4, 0.5])
    found = measure(
        fixture, worker, CellPlan(workload="mlp", strategy="async", device="cuda"), visit=0, rounds=3, account=False
    )

    assert fixture.stats.stats.data == [own.step for _, own in found.rounds] == [0.3, 0.4, 0.5]
    assert [own.forward for _, own in found.rounds] == [0.02, 0.03, 0.04]
    assert {plain.step for plain, _ in found.rounds} == {1.0}


def test_a_cell_has_the_rounds_of_all_its_visits(started):
    """Later visits add rounds; memory is followed in the first, and the largest error counts."""
    run, found = started(rounds=4), []
    for visit, error in ((0, 0.5), (1, 0.25)):
        needs = run.needs_account(run.cells[0])
        figures = {"error": error} | ({"packs": 7} if needs else {})
        found.append(run.add(run.cells[0], visit, Measurement(taken([1.0, 2.0]), Closed(Outcome.PASS, "", figures))))

    assert [(one.rounds, one.packs, one.error) for one in found] == [(2, 7, 0.5), (4, 7, 0.5)]
    assert found[1].ratio == 1.5
    assert run.run.cells == found[1:]


def test_pytest_benchmark_looks_at_the_machine_for_its_json_only(tmp_path):
    """Where nobody wants its file, pytest-benchmark writes none."""
    assert not [word for word in running._arguments(None) if "json" in word]
    assert f"--benchmark-json={tmp_path}" in running._arguments(tmp_path)


# what a step finds
def test_a_worker_s_environment(monkeypatch):
    """Memory stays with a worker unless the user's own environment says otherwise."""
    for one in _cell_worker.KEEPS:
        monkeypatch.delenv(one, raising=False)

    assert _cell_worker.environment().items() >= _cell_worker.KEEPS.items()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "0")
    assert "MALLOC_TRIM_THRESHOLD_" not in _cell_worker.environment()


@pytest.mark.parametrize(
    ("library", "name", "said"),
    [
        ("glibc", "OTHER", "keeps what is freed"),
        ("glibc", "MALLOC_TRIM_THRESHOLD_", "as the environment says"),
        ("", "OTHER", "as the C library does"),
    ],
)
def test_the_record_says_what_workers_do_with_memory(monkeypatch, library, name, said):
    """Only glibc heeds the variables, and a user's own come first."""
    for one in _cell_worker.KEEPS:
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv(name, "0")
    monkeypatch.setattr(_cell_worker.platform, "libc_ver", lambda: (library, "2"))

    assert _cell_worker.kept() == said


@pytest.fixture(scope="module")
def alone():
    """Take a few steps and follow the memory of one, in a process like a worker's; return what it printed."""
    pytest.importorskip("torch", reason="torch is not installed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **_cell_worker.environment()}
    done = subprocess.run([sys.executable, "-P", "-c", FAULTS], env=environment, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory as it pleases")
def test_a_worker_s_steps_find_their_memory(alone):
    """No step has to ask the system for pages that a step before it had."""
    assert statistics.median(map(int, alone[0].split())) < 50


def test_following_memory_does_not_import_a_compiler(alone):
    """It would take a second, in every worker."""
    assert int(alone[1]) < 100


@pytest.mark.parametrize(("device", "samples"), [("cpu", 20), ("cpu:0", 16)])
def test_gradients_are_checked_with_few_samples_on_a_device(device, samples, monkeypatch):
    """On the CPU the step that is checked is the measured one's first, with all samples; elsewhere it is another."""
    pytest.importorskip("torch", reason="torch is not installed")
    from hooklaw.offload._visit import Baselines, Visit
    from hooklaw_backends.offload import find

    seen = []
    check = Visit._checked
    monkeypatch.setattr(Visit, "_checked", lambda self, plain: (seen.append(self._own), check(self, plain))[1])
    visit = Visit(Baselines(find), CellPlan(workload="tiny", strategy="disk-raw", device=device, batch=20))

    assert (seen[0] is visit._own) == (device == "cpu")
    assert len(seen[0].workload.inputs) == samples
    assert len(visit._own.workload.inputs) == len(visit._plain.workload.inputs) == 20
