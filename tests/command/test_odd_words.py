"""What an adapter or a packer says is shown as escapes where it is not printable, by every verb that shows it."""

import shlex

import pytest

import made_records as made
from helpers import DATA, TOY_RULES
from hooklaw.results import records
from hooklaw.results.text import encoded, harmless
from hooklaw.results.verdict import Outcome

ODD = r"\x1b[2J\u202e\x00\ud800odd"
ADAPTER = f"""
class Broken(Toy):
    versions = {{"toy\\x1b[2J": "1.0\\u202e"}}
    def sum(self, tensor): return {{}}["{ODD}"]
made = Broken()
def refused(argument): raise RuntimeError("{ODD}")
"""
PACKER = f"""
import torch

class Odd:
    versions = {{"odd\\x1b[2J": "1.0\\u202e\\nforged"}}
    medium = "cpu\\x1b[2J\\nforged"

    def __init__(self):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, self.unpack)

    def unpack(self, packed):
        raise RuntimeError("{ODD}")

    def __enter__(self):
        self.hooks.__enter__()

    def __exit__(self, *error):
        self.hooks.__exit__(*error)
"""


def raw(done):
    """Return the characters that a terminal would act on."""
    return [letter for letter in done.stdout + done.stderr if not letter.isprintable() and letter != "\n"]


def forged(done):
    """Return the lines that a packer began by a line break in its own words."""
    return [line for line in done.stdout.splitlines() if line.startswith("forged")]


@pytest.mark.parametrize(
    "words",
    [
        "run --backend broken:made --rules {rules}",
        "run --backend broken:made --rules {rules} --in-process --annotations github",
        "explain order.six-steps.leaf --backend broken:made",
        "check-backend broken:made",
        "findings --backend broken:made -k order.six-steps",
        "findings --backend broken:made -k order.six-steps --format issue",
        "run --backend broken:refused",
        "explain order.six-steps.leaf --backend broken:refused",
        "check-backend broken:refused",
        "fuzz --backend broken:refused",
    ],
)
def test_adapter(hooklaw, adapter, words):
    """No verb lets the words of an adapter reach the terminal raw."""
    adapter(ADAPTER)
    done = hooklaw(*shlex.split(words.format(rules=TOY_RULES)), path=[DATA])

    assert raw(done) == []
    assert "Traceback" not in done.stderr
    assert "x1b[2J" in done.stdout + done.stderr


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_packer(hooklaw, tmp_path, form):
    """The verdict on a packer, its records and what is made of them hold no such character."""
    pytest.importorskip("torch")
    (tmp_path / "odd.py").write_text(PACKER)
    done = hooklaw("packer", "odd:Odd", "-k", "identity.dtype", "--format", form, "--results=r.jsonl", path=[tmp_path])
    (run,) = records.read(tmp_path / "r.jsonl")

    assert (done.returncode, raw(done), forged(done)) == (1, [], [])
    assert run.results["packer.identity.dtype"].detail == "raised RuntimeError: \x1b[2J\u202e\x00\\ud800odd"
    for words in (["diff", "r.jsonl", "r.jsonl"], ["merge", "r.jsonl", "-o", "m.jsonl"], ["report", "r.jsonl"]):
        read = hooklaw(*words)
        assert (read.returncode, raw(read), forged(read)) == (0, [], [])


@pytest.mark.parametrize("words", ["diff r.jsonl r.jsonl", "merge r.jsonl -o m.jsonl", "report r.jsonl"])
def test_record(hooklaw, tmp_path, words):
    """What a record says of a packer, and why it was not judged, begins no line and reaches no terminal raw."""
    odd = "1.0\x1b[2J\u202e\ud800\nforged"
    silent = made.failed(outcome=Outcome.NOT_RUN, detail=odd)
    said = {"versions": {"odd": odd}, "notes": {"medium": odd}, "not_run": odd}
    made.write(tmp_path / "r.jsonl", made.packer("odd", [made.rule()], [silent], **said))

    done = hooklaw(*words.split())

    assert (done.returncode, raw(done), forged(done)) == (0, [], [])


def test_surrogates_in_a_tuple():
    """Half a character is written as an escape wherever in an answer it stands."""
    assert encoded(({"\ud800": ["\ud800"]}, True)) == rb'[{"\\ud800":["\\ud800"]},true]'


def test_long_lines_are_kept():
    """What is printed whole keeps its lines, their length and their tabs."""
    assert harmless("a" * 5000 + "\n\tb\x1b") == "a" * 5000 + "\n\tb\\x1b"
