"""A backend that leaves, hangs up or calls itself costs its own results at most: the next backend is judged."""

import pytest

from helpers import complaint
from hooklaw.results import records


@pytest.mark.parametrize("leave", ["KeyboardInterrupt", "SystemExit(0)", "GeneratorExit"])
def test_verb_that_leaves_a_worker(judge, adapter, tmp_path, leave):
    """In a worker, which no Ctrl-C reaches, an exception that ends programs is the adapter's like any other."""
    adapter(f"class Broken(Toy):\n    def sum(self, tensor): raise {leave}\nmade = Broken()")
    done = judge("--backend", "toy:backend", "--results=r.jsonl", backend="broken:made", apart=True)
    broken, toy = records.read(tmp_path / "r.jsonl")

    assert done.returncode == 3
    assert f"verb 'sum' raised {leave.partition('(')[0]}" in complaint(done)
    assert {each.outcome for each in broken.results.values()} >= {"error"}
    assert len(broken.results) == len(toy.results) == 5


LEAVING = {
    "a factory that interrupts": ("def made(_): raise KeyboardInterrupt", "its factory raised KeyboardInterrupt: "),
    "a factory that signals": (
        "import os, signal, time\ndef made(_):\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)",
        "its factory raised KeyboardInterrupt: ",
    ),
    "a factory that leaves": ("def made(_): raise SystemExit(0)", "its factory raised SystemExit: 0"),
    "a factory that ends the process": (
        "import os\ndef made(_): os._exit(0)",
        "cannot be loaded, each time the process died without a word",
    ),
    "a module that interrupts": ("raise KeyboardInterrupt", "cannot import module broken: KeyboardInterrupt: "),
    "an attribute that interrupts": (
        "class Broken(Toy):\n    @property\n    def name(self): raise KeyboardInterrupt\nmade = Broken()",
        "the run broke: KeyboardInterrupt: ",
    ),
    "an adapter that hangs up": (
        "import os\ndef made(_):\n    os.close(0)\n    return Toy()",
        "backend 'broken:made' cannot be judged: while the rules were collected, the process died",
    ),
    "a verb that calls itself": (
        "class Broken(Toy):\n    def sum(self, tensor): return self.sum(tensor)\nmade = Broken()",
        "",
    ),
}


@pytest.mark.parametrize(("text", "said"), LEAVING.values(), ids=LEAVING)
def test_backend_that_leaves_the_others_alone(judge, adapter, tmp_path, text, said):
    """However a backend ends its process, the next backend is judged, and one sentence names the first."""
    adapter(text)
    done = judge("--backend", "toy:backend", "--results=r.jsonl", backend="broken:made", timeout=60, apart=True)
    *_, toy = records.read(tmp_path / "r.jsonl")

    assert done.returncode == (3 if said else 1)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert (toy.header.backend, toy.complete) == ("toy:backend", True)


def test_verb_that_calls_itself_in_process(judge, adapter):
    """A rule that fails for endless recursion is a result too where it has no script."""
    adapter(LEAVING["a verb that calls itself"][0])
    done = judge("--in-process", backend="broken:made")

    assert "sum raised RecursionError" in done.stdout
    assert "Traceback" not in done.stderr


ENDINGS = {
    "while it is loaded": ("def made(_): os._exit(0)", "while backend 'broken:made' was loaded"),
    "while it is imported": ("os._exit(0)", "while backend 'broken:made' was loaded"),
    "in a verb": (
        "class Broken(Toy):\n    def register_hook(self, tensor, hook): os._exit(0)\nmade = Broken()",
        "by rule toy.order on backend 'broken:made'",
    ),
}


@pytest.mark.parametrize(("text", "when"), ENDINGS.values(), ids=ENDINGS)
def test_end_of_the_process_in_process(judge, adapter, text, when):
    """Where nothing contains it, os._exit(0) ends the run with a sentence and the exit code of a breakdown."""
    adapter(f"import os\n{text}")
    done = judge("--in-process", "-k", "toy.order", backend="broken:made")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"hooklaw: os._exit(0) was called {when}, and nothing contains it here (--in-process)\n"


FORKS = """
import os

class Forks(Toy):
    def sum(self, tensor):
        child = os.fork() or os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        return super().sum(tensor)

made = Forks()
"""


def test_end_of_a_fork_in_process(judge, adapter):
    """A process that a backend forks ends as it says."""
    adapter(FORKS)
    done = judge("--in-process", "-k", "toy.order", backend="broken:made")

    assert (done.returncode, done.stderr) == (0, "")
