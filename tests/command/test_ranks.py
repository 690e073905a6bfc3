"""Rules of several processes: one outcome, whatever a rank does, and no process left."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from hooklaw import Capability, NotRunError
from hooklaw.backend.conditions import UNCHANGED, find_condition
from hooklaw.law.collection import find_rule
from hooklaw.law.rule import Level, Registered, Rule
from hooklaw.repro import script_of
from hooklaw.results.verdict import Outcome
from hooklaw.runner import in_ranks
from hooklaw.runner.execute import execute
from hooklaw.workers.ranks import Ranks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked")


class Made(SimpleNamespace):
    """A backend whose ranks know their numbers."""

    name = "made"
    capabilities = frozenset({Capability.PROCESSES})
    number = -1
    refusal = ""
    out_of_step = None
    runs = 0

    def init_process_group(self, rank, world_size, store):
        """Take the number, unless there is a reason to refuse."""
        if self.refusal:
            raise NotRunError(self.refusal)
        Path(store).read_bytes()
        self.number = rank

    def is_tensor(self, value):
        """There are none."""
        return False

    def tensor(self, data):
        """Return the numbers: they do for a tensor."""
        return data

    def tolist(self, tensor):
        """Return the numbers."""
        return tensor

    def all_reduce(self, tensor):
        """Take the sum of two ranks, unless the rank that is out of step waits for another one."""
        if self.number == self.out_of_step:
            time.sleep(60)
        tensor[:] = [3.0]


@pytest.fixture
def backend():
    """Return a backend, and end its ranks afterwards."""
    yield Made()
    in_ranks.close()


def rule_of(function, processes=2):
    """Return a rule of several processes."""
    law = Rule("made.rule", "made", "It is so.", Level.SHOULD, "observed", [], ["processes"], [], processes=processes)
    return Registered(law, function, "test_made.py::test_made")


def judged(backend, function, condition=UNCHANGED, processes=2):
    """Execute a rule of several processes."""
    return execute(rule_of(function, processes), backend, condition=condition)


def log_pid(backend, trace):
    """Log which process this is."""
    trace.log("pid", os.getpid())


def children():
    """Return the ids of this process's children; other tests may have left workers of theirs."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(path.parent.name)
    return found


def is_gone(pid):
    """Whether there is no process of this id."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def test_rank_0_is_shown(backend):
    """If the rule holds in all ranks, the lanes are those of rank 0."""
    done = judged(backend, lambda backend, trace: trace.log("rank", backend.number))

    assert (done.outcome, [event.value for event in done.observed]) == (Outcome.PASS, [0])


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_failing_rank_is_named(backend, rank):
    """If the rule fails in one rank, that is the outcome, and the rank is named."""

    def rule(backend, trace):
        trace.expect_value("ranks", "fine", "fine" if backend.number != rank else "not fine")

    done = judged(backend, rule, processes=4)

    assert (Outcome.FAIL, f"rank {rank}: ranks should be fine, was not fine") == (done.outcome, done.detail)


@pytest.mark.parametrize(
    ("ranks", "said"), [(True, "denied, and it does not hold: nodes: none"), (False, "processes: none; nodes: none")]
)
def test_probed_in_ranks(backend, ranks, said):
    """A rule of several processes is probed in ranks: in one process alone it may hold by itself."""
    backend.lacks = dict.fromkeys((Capability.PROCESSES, Capability.NODES), "none")
    backend.capabilities = frozenset({Capability.PROCESSES} if ranks else ())
    found = rule_of(lambda backend, trace: trace.expect_value("number", 0, max(0, backend.number)))
    found.rule.needs.append("nodes")

    assert execute(found, backend, probe=True).detail == said


def test_rank_that_waits_for_a_failed_one(backend):
    """A rank that failed is the culprit, not the rank that waits for it, and the wait is short."""

    def rule(backend, trace):
        if backend.number == 0:
            time.sleep(60)
        trace.expect_value("all", 1, 2)

    began = time.monotonic()
    done = judged(backend, rule)

    assert (done.outcome, done.detail) == (Outcome.FAIL, "rank 1: all should be 1, was 2")
    assert time.monotonic() - began < 30


def test_ranks_that_fail_alike(backend):
    """Where both ranks fail in the same way the first is named, whichever failed first."""

    def rule(backend, trace):
        time.sleep(0.1 * (1 - backend.number))
        trace.expect_value("all", 1, 2)

    assert judged(backend, rule).detail == "rank 0: all should be 1, was 2"


def test_rank_that_dies(backend):
    """A rank that dies is a crash with the rank's line; the next rule has new ranks."""

    def rule(backend, trace):
        if backend.number == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)

    done = judged(backend, rule)

    assert (done.outcome, done.detail) == (Outcome.CRASH, "rank 1: the process died: Segmentation fault")
    assert Outcome.PASS is judged(backend, lambda backend, trace: None).outcome


def test_rank_that_hangs(backend, monkeypatch):
    """A rank that hangs is a timeout that says where it hung, and no rank is left."""
    monkeypatch.setattr(in_ranks, "LIMIT", 3.0)
    before = children()

    def rule(backend, trace):
        if backend.number == 1:
            time.sleep(60)

    done = judged(backend, rule)

    assert (done.outcome, done.detail) == (Outcome.TIMEOUT, "rank 1: did not end within 3 s")
    assert "test_ranks.py:" in done.where
    assert children() <= before


def test_ranks_are_kept(backend):
    """The ranks that kept a rule execute the next one too."""
    found = rule_of(log_pid)
    pids = [execute(found, backend).observed[0].value for _ in range(2)]

    assert pids[0] == pids[1]


def around_a_failure(backend, processes=2):
    """Execute a rule three times, which fails in rank 1 the second time; return the three results."""

    def rule(backend, trace):
        log_pid(backend, trace)
        backend.runs += 1
        trace.expect_value("not rank 1 in its second run", 1, int((backend.runs, backend.number) != (2, 1)))

    found = rule_of(rule, processes)
    return [execute(found, backend) for _ in range(3)]


def pid(done):
    """Return which process rank 0 was."""
    return done.observed[0].value


def test_ranks_in_step_are_kept(backend):
    """Where a rule failed, and all ranks come to an all-reduce, they execute the next rule too."""
    first, failed, second = around_a_failure(backend)

    assert [each.outcome for each in (first, failed, second)] == [Outcome.PASS, Outcome.FAIL, Outcome.PASS]
    assert pid(first) == pid(second)


def test_ranks_out_of_step(backend, monkeypatch):
    """Where a rule failed, and a rank waits for what another will never do, the next rule has new ranks, and soon."""
    monkeypatch.setattr(in_ranks, "STEP_LIMIT", 0.5)
    backend.out_of_step = 0
    began = time.monotonic()
    first, _, second = around_a_failure(backend)

    assert Outcome.PASS is second.outcome
    assert pid(first) != pid(second)
    assert is_gone(pid(first))
    assert time.monotonic() - began < 30


def test_wrong_sum(backend):
    """Where a rule failed, and an all-reduce gives another sum, the next rule has new ranks."""
    first, _, second = around_a_failure(backend, processes=3)

    assert pid(first) != pid(second)


def test_groups_of_several_sizes(backend):
    """A rule of more processes has ranks of its own, beside which the others are kept until they are closed."""
    before = children()
    two, three = rule_of(log_pid), rule_of(log_pid, processes=3)
    first, more, second = [execute(found, backend) for found in (two, three, two)]
    in_ranks.close()

    assert pid(first) == pid(second) != pid(more)
    assert children() <= before


def test_ranks_of_another_backend(backend):
    """Another backend has ranks of its own, and the ones before are gone."""
    found = rule_of(log_pid)
    first = execute(found, backend).observed[0].value
    second = execute(found, Made()).observed[0].value

    assert first != second
    assert is_gone(first)


def test_closed_ranks_are_gone(backend):
    """After close no rank is left."""
    before = children()
    pid = judged(backend, log_pid).observed[0].value
    in_ranks.close()

    assert is_gone(pid)
    assert children() <= before


def test_condition_reaches_the_ranks(backend):
    """Under a condition the rule is run under it in each rank."""
    done = judged(backend, lambda backend, trace: trace.log("once", backend.number), find_condition("again"))

    assert Outcome.PASS is done.outcome
    assert [event.value for event in done.observed] == [0]


def test_no_group(backend):
    """Where no group can be formed the rule is not run, with the adapter's reason."""
    backend.refusal = "no loopback here"
    done = judged(backend, lambda backend, trace: None)

    assert Outcome.NOT_RUN is done.outcome
    assert done.detail.endswith(": no loopback here")


def test_no_process(backend, monkeypatch):
    """Where the system has no process to give the rule is not run, and the sentence says why."""

    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    done = judged(backend, lambda backend, trace: None)

    assert Outcome.NOT_RUN is done.outcome
    assert done.detail == "2 processes cannot be started here: [Errno 11] Resource temporarily unavailable"


def test_ranks_die_with_their_parent():
    """A rank that hangs ends when the process that forked it is killed."""
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:
        ranks = Ranks(1, lambda rank, request, store: time.sleep(60) or b"")
        os.write(writing, f"{ranks._pids[0]}\n".encode())
        os.write(ranks._pipes[0].requests[1], b"hang\n")
        time.sleep(60)
        os._exit(0)
    rank = int(os.read(reading, 100))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    deadline = time.monotonic() + 60
    while not is_gone(rank) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert is_gone(rank)


def test_script_of_a_rule_of_several_processes(tmp_path):
    """The script of a rule of several processes forks, and fails if any of its processes does."""
    backend = pytest.importorskip("hooklaw_backends.torch_eager").backend()
    script = script_of(find_rule("ddp.gradients-averaged"), backend)
    joined = "init_process_group(rank, 2, store)\n"
    wrong = script.replace(f"\n{joined}", f"\n{joined}assert rank == 0, 'made to fail'\n")
    codes = []
    for text in (script, wrong):
        (tmp_path / "script.py").write_text(text)
        done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, check=False)
        codes.append(done.returncode)

    assert codes == [0, 1]
