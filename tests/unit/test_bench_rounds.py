"""Rounds of the benchmark: how many a cell gets, what warms it, and the memory that its steps find."""

import platform
import statistics
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hooklaw.offload import hand, running, visit
from hooklaw.offload.plan import Order, Wanted
from hooklaw.offload.rounds import Taken, Times, needed, quartiles
from hooklaw.offload.visit import Measurement

STEADY, SHAKY = [1.0, 1.01], [1.0, 1.0, 1.3, 1.3]
ONCE = {"device": "cuda"}
"""A device whose cells are visited once."""
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


class FakeHand:
    """Takes steps that cost nothing, and says how long they took: plain ones a second, own ones as it was told."""

    def __init__(self, own):
        self.own = own
        self.taken = []

    def take(self, which):
        """Take a step."""
        self.taken.append(which)
        return self.own[self.taken.count("own") % len(self.own)] if which == "own" else 1.0

    def finish(self, warm_ups):
        """End the visit."""
        return self.taken.count("own") - warm_ups


def made_session(*, warm_ups=0, spare=9.0, earlier=(), **wanted):
    """Make up a session whose cell was visited before, with these ratios."""
    known = Taken([(Times(1.0, 0.0), Times(own, 0.0)) for own in earlier], (0, 0), None) if earlier else None
    parts = {"earlier": lambda _: known, "add": lambda _order, _visit, rounds: rounds}
    return SimpleNamespace(wanted=Wanted(**wanted), warm_ups=warm_ups, spare=spare, **parts)


def measured(own, *, which=None, **given):
    """Visit a made-up cell, in its last visit unless told, and return how many rounds count and what was taken."""
    session = made_session(**given)
    made = FakeHand(own)
    last = session.wanted.visits - 1
    cell = Measurement(session, made, Order(workload="mlp", strategy="async"), last if which is None else which)
    for _ in range(session.warm_ups + cell.rounds):
        cell.round()
    return cell.close(), made.taken


# how many
@pytest.mark.parametrize(
    ("own", "most", "expected"), [(STEADY, 18, 9), (SHAKY, 18, 18), (SHAKY, 11, 11), (SHAKY, 0, 9)]
)
def test_a_cell_gets_further_rounds_where_its_ratio_is_unsure(own, most, expected):
    """A steady ratio has enough with the usual rounds, a shaky one gets up to the most that are allowed."""
    assert measured(own, rounds=9, most=most, **ONCE)[0] == expected


def test_further_rounds_end_where_the_ratio_is_sure():
    """What was shaky at first is steady in the end: no further round is taken from then on."""
    rounds, _ = measured([1.0, *SHAKY, *STEADY * 10], rounds=4, most=18, **ONCE)

    assert 4 < rounds < 18


def test_every_round_has_both_steps_in_either_order():
    """A further round is one like all others: the plain step and the strategy's, and either may come first."""
    rounds, taken = measured(SHAKY, warm_ups=1, most=18, **ONCE)
    pairs = [tuple(taken[at : at + 2]) for at in range(0, len(taken), 2)]

    assert set(pairs) == {("plain", "own"), ("own", "plain")}
    assert len(pairs) == rounds + 1


@pytest.mark.parametrize("how", ["seconds", "limit"])
def test_no_further_round_is_begun_after_a_while(monkeypatch, how):
    """Neither the machine's noise nor slow steps make a run endless, or run a cell into its limit."""
    monkeypatch.setattr(visit, "SECONDS", 0.0)
    given = {"seconds": {"spare": 0.0}, "limit": {"limit": 0.0}}[how]

    assert measured(SHAKY, rounds=9, most=18, **ONCE, **given)[0] == 9
    assert measured(SHAKY, rounds=9, most=18, **ONCE)[0] == 18


def test_time_that_a_cell_does_not_need_is_left_to_the_next(monkeypatch):
    """A steady cell adds to what is spare, and a shaky one takes from it."""
    given = made_session(spare=0.0, most=18, **ONCE)
    cell = Measurement(given, FakeHand(STEADY), Order(workload="mlp", strategy="async"), 0)
    for _ in range(cell.rounds):
        cell.round()
    cell.close()
    spared = given.spare
    monkeypatch.setattr(visit, "SECONDS", 0.0)
    cell = Measurement(given, FakeHand(SHAKY), Order(workload="mlp", strategy="bf16"), 0)
    for _ in range(cell.rounds):
        cell.round()
    cell.close()

    assert 0 < spared < 1
    assert given.spare < spared


def test_what_warms_up_is_not_looked_at():
    """Rounds that do not count do not make the others unsure either."""
    assert measured([1.0, *[9.0] * 3, *[1.0] * 60], warm_ups=3, rounds=9, most=18, **ONCE)[0] == 9


def test_needed_rounds_are_a_matter_of_the_quartiles():
    """One round is sure of itself, an outlier shakes nothing, and twice the distance takes four times the rounds."""
    assert quartiles([1.5]) == (1.5, 1.5, 1.5)
    assert needed([1.5]) == 0
    assert needed([1.0] * 8 + [9.0]) == 0
    assert needed([0.97, 1.03] * 5) == needed([0.97, 1.03] * 9) == 22
    assert needed([0.94, 1.06] * 9) == 87


# visits
@pytest.mark.parametrize(
    ("rounds", "device", "expected"),
    [(8, "cpu", [2, 2, 2, 2]), (9, "cpu", [2, 2, 2, 3]), (5, "cpu", [2, 3]), (3, "cpu", [3]), (8, "cuda", [8])],
)
def test_rounds_are_spread_over_visits(rounds, device, expected):
    """A machine may be slow for seconds, so a cell is looked at more than once; a device has no such neighbours."""
    wanted = {"rounds": rounds, "device": device}
    given = made_session(**wanted)
    visits = [Measurement(given, None, Order(workload="mlp", strategy="async"), n) for n in range(given.wanted.visits)]

    assert [one.rounds for one in visits] == expected


def test_further_rounds_are_spread_too():
    """An unsure cell takes in each visit its share of what is missing; what earlier visits took is looked at."""
    steady, shaky = [1.0] * 2, [1.0, 1.3] * 3

    assert measured(SHAKY, earlier=SHAKY[:2], which=1, rounds=8, most=20)[0] == 2 + 4
    assert measured(STEADY, earlier=shaky, which=3, rounds=8, most=20)[0] > 2
    assert measured(STEADY, earlier=steady, which=3, rounds=8, most=20)[0] == 2


def test_pytest_benchmark_looks_at_the_machine_for_its_json_only(tmp_path):
    """Where nobody wants its file, pytest-benchmark writes none."""
    assert not [word for word in running._arguments(None) if "json" in word]
    assert f"--benchmark-json={tmp_path}" in running._arguments(tmp_path)


# what a step finds
def test_a_worker_s_environment(tmp_path, monkeypatch):
    """Memory stays with a worker unless the user's own environment says otherwise."""
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)

    assert hand.environment(tmp_path).items() >= {**hand.KEEPS, "TMPDIR": str(tmp_path)}.items()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "0")
    assert hand.environment(tmp_path)["MALLOC_TRIM_THRESHOLD_"] == "0"


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
    for one in hand.KEEPS:
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv(name, "0")
    monkeypatch.setattr(hand.platform, "libc_ver", lambda: (library, "2"))

    assert hand.kept() == said


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Take a few steps and follow the memory of one, in a process like a worker's; return what it printed."""
    pytest.importorskip("torch", reason="torch is not installed")
    environment = hand.environment(tmp_path_factory.mktemp("alone"))
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
    from hooklaw.offload.plan import STRATEGIES
    from hooklaw.offload.trial import Bench, Trial

    checked = []
    check = Trial._check
    monkeypatch.setattr(Trial, "_check", lambda self, plain: (checked.append(self._own), check(self, plain)))
    trial = Trial(Bench(STRATEGIES), Order(workload="tiny", strategy="disk-raw", device=device, batch=20))

    assert (checked[0] is trial._own) == (device == "cpu")
    assert len(checked[0].workload.inputs) == samples
    assert len(trial._own.workload.inputs) == len(trial._plain.workload.inputs) == 20
