"""A worker under its supervisor: it answers, dies, hangs or is declared unfit, and the next request is answered."""

import os
from pathlib import Path

import pytest
from services import Settings

from hooklaw.errors import NotRunError, PackerError, WorkerError
from hooklaw.workers import supervisor as module
from hooklaw.workers.supervisor import Supervisor, WorkerDiedError


@pytest.fixture
def supervised():
    """Return a function that starts the odd service."""
    made = []

    def start(start="well", **how):
        found = Supervisor("services:Odd", Settings(start), name="the odd service", hello=int, answer=object, **how)
        made.append(found)
        return found

    yield start
    for worker in made:
        worker.close()


def died(worker, request, limit=10.0):
    """Return how the worker died of a request."""
    with pytest.raises(WorkerDiedError) as caught:
        worker.ask(request, limit)
    return caught.value.death


def test_answers(supervised):
    """One worker says hello and answers one request after another."""
    worker = supervised()

    assert (worker.hello(), worker.ask("well", 10), worker.hello()) == (worker.hello(), "well", worker.hello())
    assert worker.hello() != os.getpid()


def test_notes(supervised):
    """What the service says before it answers is heard, even if it dies next."""
    worker, heard = supervised(), []
    worker.ask("well", 10, heard.append)
    with pytest.raises(WorkerDiedError):
        worker.ask("leave", 10, heard.append)

    assert heard == [b'"begins to well"', b'"begins to leave"']


def test_what_is_printed_is_not_an_answer(supervised):
    """What the service prints, in Python or below it, does not stand among its answers."""
    worker = supervised()

    assert [worker.ask("talk", 10), worker.ask("well", 10)] == ["talked", "well"]


@pytest.mark.parametrize(
    ("request_", "outcome", "said", "code"),
    [
        ("segfault", "crash", "the process died: Segmentation fault", -11),
        ("leave", "crash", "the process died without a word (killed, out of memory, or os._exit)", 3),
        ("kill", "crash", "the process died without a word (killed, out of memory, or os._exit)", -9),
        ("hang", "timeout", "did not end within 0.7 s", 1),
        ("freeze", "timeout", "did not end within 0.7 s", -9),
    ],
)
def test_death(supervised, monkeypatch, request_, outcome, said, code):  # noqa: PLR0913, PLR0917 - a table
    """A death is told with its outcome, its last words and the exit code, and another worker takes over."""
    if request_ == "freeze":  # no watchdog ends it
        monkeypatch.setattr(module, "GRACE", 0.5)
    worker = supervised()
    first = worker.hello()
    death = died(worker, request_, limit=0.7 if outcome == "timeout" else 60)

    assert (death.outcome, death.detail, death.code) == (outcome, said, code)
    assert worker.ask("well", 10) == "well"
    assert worker.hello() != first


def test_the_tail_of_stderr(supervised):
    """Of what the process wrote to stderr while it worked on the request the last twenty lines are kept."""
    worker = supervised()
    worker.ask("talk", 10)  # to stderr, since stdout is moved there

    assert died(worker, "leave").stderr == ""
    assert [f"line {number}" for number in range(980, 1000)] == died(worker, "segfault").stderr.splitlines()


def test_a_child_does_not_hide_a_death(supervised):
    """A worker that dies and leaves a child that holds its pipes is noticed long before the limit."""
    death = died(supervised(), "fork", limit=1000)

    assert (death.outcome, death.code) == ("crash", 0)


def test_unfit(supervised):
    """A worker that is declared unfit is replaced before the next request."""
    worker = supervised()
    first = worker.hello()
    worker.retire()

    assert worker.ask("well", 10) == "well"
    assert worker.hello() != first


def test_died_between_requests(supervised):
    """A worker that dies while nothing is asked of it is replaced, and the next request is not blamed."""
    worker = supervised()
    first = worker.hello()
    os.kill(first, 9)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)

    assert worker.ask("well", 10) == "well"


def test_two_side_by_side(supervised):
    """Two workers work at the same time."""
    one, other = supervised(), supervised()
    one.start()
    other.start()

    assert one.hello() != other.hello()
    assert [one.ask("well", 10), other.ask("well", 10)] == ["well", "well"]


def test_environment(supervised, tmp_path):
    """A worker has the environment and the temporary folder that are its own, and the folder goes with it."""
    worker = supervised(environment={"COLOUR": "green"}, temporary_folder=True)
    folder, colour = worker.ask("environment", 10)

    assert colour == "green"
    assert Path(folder).is_dir()
    worker.close()
    assert not Path(folder).exists()


def test_memory(supervised):
    """A bound on memory is heard of by the service, which can say so."""
    worker = supervised(memory=1 << 30)

    with pytest.raises(WorkerError, match="the run broke: MemoryError"):
        worker.ask("eat", 10)
    assert worker.ask("well", 10) == "well"


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("absent", NotRunError, "no such hardware"),
        ("refuse", PackerError, "no packer"),
        ("interrupt", WorkerError, "the run broke: KeyboardInterrupt: +\\(.*services.py:"),
        ("fault", WorkerError, "the run broke: KeyError: 'missing' \\(.*services.py:"),
        ("leave", WorkerError, "the odd service cannot be loaded, each time the process died without a word"),
        ("segfault", WorkerError, "each time the process died: Segmentation fault\n  line 980\n"),
    ],
)
def test_faults(supervised, how, error, said):
    """What the service raises while it starts is raised here, and a death while it starts is given up on."""
    with pytest.raises(error, match=said):
        supervised(how).hello()


def test_a_fault_of_a_request(supervised):
    """What the service raises of a request is raised here, and the worker lives on."""
    worker = supervised()
    first = worker.hello()
    with pytest.raises(PackerError):
        worker.ask("refuse", 10)

    assert (worker.ask("well", 10), worker.hello()) == ("well", first)
