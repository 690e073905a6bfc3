"""Documentation coverage: where sentences stand in another version, and what `hooklaw coverage` says and exits with."""

import json

import pytest

from helpers import complaint, ran
from hooklaw.cli import main
from hooklaw.sources import installed
from hooklaw.sources.answers import Answer
from hooklaw.sources.coverage import Drift, Read, Sentence, Status, drift, standings
from hooklaw.sources.readings import load_readings
from hooklaw.sources.survey import Survey, survey

KEPT = {"docstring made.hook": ["a", "b", "c"]}
SAID = {"docstring made.hook": [Answer(["a.b"], [], []), Answer([], [], ["example"]), Answer([], [], [])]}


def stand(*marks, key="docstring made.hook"):
    """Return where each sentence stands if these are found: ordinal, status, and the ordinals in the kept table."""
    found = standings({key: [Read(mark) for mark in marks]}, KEPT, SAID)
    return [(each.ordinal, each.status.name, each.kept, each.instead_of) for each in found if each.source == key]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("abc", [(1, "COVERED", 1, 0), (2, "NO_RULE", 2, 0), (3, "UNCOVERED", 3, 0)]),
        ("bca", [(1, "NO_RULE", 2, 0), (2, "UNCOVERED", 3, 0), (3, "COVERED", 1, 0)]),
        ("ab", [(1, "COVERED", 1, 0), (2, "NO_RULE", 2, 0), (3, "VANISHED", 3, 0)]),
        (
            "axbc",
            [(1, "COVERED", 1, 0), (2, "UNCOVERED", 0, 0), (3, "NO_RULE", 2, 0), (4, "UNCOVERED", 3, 0)],
        ),
        (
            "axc",
            [(1, "COVERED", 1, 0), (2, "UNCOVERED", 0, 2), (3, "UNCOVERED", 3, 0), (2, "VANISHED", 2, 0)],
        ),
        (
            "xbca",
            [(1, "UNCOVERED", 0, 0), (2, "NO_RULE", 2, 0), (3, "UNCOVERED", 3, 0), (4, "COVERED", 1, 0)],
        ),
        ("", [(1, "VANISHED", 1, 0), (2, "VANISHED", 2, 0), (3, "VANISHED", 3, 0)]),
    ],
)
def test_standings(marks, expected):
    """A sentence is found again where it moved; another in its place is uncovered, and the first has vanished."""
    assert expected == stand(*marks)


def test_new_source():
    """A source that is not in the kept table is uncovered."""
    assert stand("x", key="docstring made.new") == [(1, "UNCOVERED", 0, 0)]


def test_drift():
    """In another version a sentence is new, changed or gone, and names the rules of the one in its place."""
    found = drift(standings({"docstring made.hook": [Read("x"), Read("b"), Read("y")], "z": [Read("z")]}, KEPT, SAID))

    assert [(what, each.source[-4:], each.ordinal, each.rules) for what, each in found] == [
        (Drift.CHANGED, "hook", 1, ("a.b",)),
        (Drift.CHANGED, "hook", 3, ()),
        (Drift.NEW, "z", 1, ()),
    ]
    assert [what for what, _ in drift(standings({}, KEPT, SAID))] == [Drift.GONE] * 3


def made(*sentences, torch="2.0", unsourced=(), complaints=(), unread=()):
    """Make a survey."""
    return Survey(torch, "2.0", [*sentences], [*unsourced], [*complaints], [*unread])


COVERED = Sentence("docstring made.hook", 1, Status.COVERED, ("a.b",), kept=1, text="It runs.")
EXAMPLE = Sentence("docstring made.hook", 2, Status.NO_RULE, reason="example", kept=2, text="So.")
OPEN = Sentence("docstring made.hook", 3, Status.UNCOVERED, kept=3, text="It ends.")
NEW = Sentence("docstring made.hook", 3, Status.UNCOVERED, ("a.b",), instead_of=3, text="It stops.")
GONE = Sentence("notes/made#how", 1, Status.VANISHED, ("a.c",), kept=1)
GONE_TOO = Sentence("notes/made#how", 2, Status.VANISHED, (), "user", kept=2)


@pytest.fixture
def coverage(monkeypatch, capsys):
    """Return the verb as a function of a survey and of arguments."""

    def run(found, *args):
        monkeypatch.setattr("hooklaw.cli.coverage.survey", lambda pages, library: found)
        return ran(main(["coverage", *args]), *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("found", "args", "code"),
    [
        (made(COVERED, EXAMPLE), [], 0),
        (made(COVERED, OPEN), [], 1),
        (made(COVERED, GONE), [], 1),
        (made(COVERED, unsourced=["a.d"]), [], 1),
        (made(COVERED, complaints=["wrong"]), [], 1),
        (made(COVERED, NEW, GONE, torch="2.1"), [], 0),
        (made(COVERED, NEW, GONE, torch="2.1"), ["--strict"], 1),
        (made(COVERED, EXAMPLE, torch="2.1"), ["--strict"], 0),
        (made(COVERED, complaints=["wrong"], torch="2.1"), [], 1),
    ],
)
def test_exit_code(coverage, found, args, code):
    """On the pinned version whatever is left over fails; on another one what differs does only if that is asked for."""
    assert coverage(found, *args).returncode == code


def test_text(coverage):
    """The text names what is left over, and counts."""
    done = coverage(made(COVERED, EXAMPLE, OPEN, GONE, GONE_TOO, unsourced=["a.d"], unread=["made.c", "torch.C"]))

    assert done.stdout == (
        "docstring made.hook:\n"
        "   3 uncovered  It ends.\n"
        "notes/made#how: gone, with 2 sentences of a.c\n"
        "a.d: a documented rule that names no sentence\n"
        "compiled, so not read from the files: torch.C\n"
        "not read, since pages are not part of torch (--notes DIR): made.c\n"
        "torch 2.0: 1 covered, 1 no rule, 1 uncovered, 2 vanished, 1 unsourced\n"
    )


def test_drift_in_text(coverage):
    """Of another version the text says what is new, changed or gone, and the rules that it touches."""
    lines = coverage(made(COVERED, NEW, GONE, torch="2.1")).stdout.splitlines()

    assert lines == [
        "docstring made.hook:",
        "   3 changed (a.b)  It stops.",
        "notes/made#how:",
        "   1 gone (a.c)",
        "torch 2.1: 1 covered, 0 no rule, 1 uncovered, 1 vanished, 0 unsourced",
        "the rules are of torch 2.0; since then, or before it: 0 new, 1 changed, 1 gone",
    ]


def test_names(coverage):
    """A name prints every sentence of the sources that have it."""
    lines = coverage(made(COVERED, EXAMPLE, GONE), "made.hook").stdout.splitlines()

    assert lines[:3] == ["docstring made.hook:", "   1 covered (a.b)  It runs.", "   2 no rule (example)  So."]
    assert coverage(made(COVERED, OPEN), "--uncovered").stdout.startswith(
        "docstring made.hook:\n   3 uncovered  It ends"
    )


def test_json(coverage):
    """JSON has every sentence without its words, what is left over, and the counts."""
    found = json.loads(coverage(made(COVERED, GONE, complaints=["wrong"]), "--format", "json").stdout)

    assert found["counts"] == {"covered": 1, "no rule": 0, "uncovered": 0, "vanished": 1}
    assert found["sentences"][0] == {
        "source": "docstring made.hook",
        "ordinal": 1,
        "status": "covered",
        "rules": ["a.b"],
        "reason": "",
    }
    assert found["complaints"] == ["wrong"]


def test_markdown(coverage):
    """Markdown has a table of what is left over."""
    done = coverage(made(COVERED, OPEN, GONE), "--format", "markdown")

    assert "| `docstring made.hook` | 3 | uncovered |  |" in done.stdout
    assert "| `notes/made#how` | 1 | vanished | `a.c` |" in done.stdout
    assert "- torch 2.0: 1 covered" in done.stdout


def test_unknown_name(coverage):
    """A name that no source has is one sentence that suggests another."""
    done = coverage(made(COVERED), "made.hok")

    assert done.returncode == 3
    assert complaint(done).endswith("has 'made.hok' in its name: did you mean made.hook?")


@pytest.fixture
def verb(capsys):
    """Return the verb on what is installed."""
    pytest.importorskip("torch", reason="torch is not installed")
    return lambda *args: ran(main(["coverage", *map(str, args)]), *capsys.readouterr())


def test_notes_folder_with_other_files(verb, tmp_path):
    """A folder without any of the pages is one sentence."""
    (tmp_path / "other.md").write_text("# How")
    done = verb("--notes", tmp_path)

    assert done.returncode == 3
    assert complaint(done).endswith("has none of the pages: lay them out as docs/source of pytorch/pytorch")


def test_notes_with_wrong_bytes(verb, tmp_path):
    """So is a page that is no text."""
    (tmp_path / "checkpoint.md").write_bytes(b"\xff\xfe\xff")
    done = verb("--notes", tmp_path)

    assert done.returncode == 3
    assert "checkpoint.md is not the source of a page: 'utf-8' codec" in complaint(done)


def test_notes_of_another_version(tmp_path):
    """The sentences that a page lacks have vanished, and are counted; the other pages stand as they are kept."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "checkpoint.md").write_text("# Checkpoint\nA new hook runs.")
    found = survey(tmp_path)
    pages = [each for each in found.sentences if each.source.startswith("checkpoint#")]

    assert {each.status for each in pages} == {Status.UNCOVERED, Status.VANISHED}
    assert "notes/autograd" in found.unread
    assert not found.holds() or found.drifted


def test_stripped(monkeypatch, capsys):
    """Python that leaves docstrings out is one sentence, before anything is looked for in them."""
    monkeypatch.setattr("hooklaw.sources.installed.sys.flags", type("Flags", (), {"optimize": 2})())
    done = ran(main(["coverage"]), *capsys.readouterr())

    assert done.returncode == 3
    assert complaint(done) == "hooklaw: python -OO leaves docstrings out, which are read here: run Python without -OO"


def test_absent_object(monkeypatch):
    """An object that this torch lacks has vanished with its sentences, which are counted."""
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr("hooklaw.sources.survey.counted", lambda named, readings: {})
    found = survey()

    assert sum(each.status is Status.VANISHED for each in found.sentences) > 1000
    assert not found.holds(strict=True)


def test_object_of_a_module_that_is_silent():
    """An object that a rule names is counted, though neither `import torch` nor a subject leads to its module."""
    pytest.importorskip("torch")
    name = "torch.distributed.tensor.parallel.RowwiseParallel"

    assert "row-wise" in installed.counted([name], load_readings()).get(name, "")
    assert name not in installed.counted([], load_readings())
