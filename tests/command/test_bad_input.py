"""A user's error is answered with one sentence and exit code 3, and no existing file is lost."""

import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

import made_records as made
from helpers import TOY_RULES, complaint, entry, started
from hooklaw.results import records
from hooklaw.workers import supervisor

SLOW = '''
import time
from hooklaw.law.rule import Level, observed, rule

@rule("slow.first", level=Level.MAY, basis="observed", sources=[observed("a test")])
def test_first(backend, trace):
    """Nothing happens."""

@rule("slow.second", level=Level.MAY, basis="observed", sources=[observed("a test")])
def test_second(backend, trace):
    """It takes long."""
    time.sleep(60)
'''
IN_PROCESS = "--in-process"
BROKEN_BACKENDS = {
    "does not import": ("import nowhere", "cannot import module broken: ModuleNotFoundError: No module named"),
    "is no Python": ("def (:", "cannot import module broken: SyntaxError: invalid syntax (broken.py, line 2)"),
    "leaves while importing": ("raise SystemExit(0)", "cannot import module broken: SystemExit: 0"),
    "has no such attribute": ("", "module broken has no attribute 'made'"),
    "cannot be made": ("def made(argument): raise OSError('no device')", "its factory raised OSError: no device"),
    "is none": ("made = 7", "backend 'broken:made' has no attribute 'name'"),
    "lacks a verb": (
        "class Broken(Toy): capabilities = frozenset({'nodes'})\nmade = Broken()",
        "backend 'broken:made' lacks the verb 'grad_fn', which its capability 'nodes' needs",
    ),
    "declares what does not exist": (
        "class Broken(Toy): capabilities = frozenset({'telepathy'})\nmade = Broken()",
        "backend 'broken:made' declares the unknown capability 'telepathy': choose from accelerator",
    ),
    "maps an error that does not exist": (
        "class Broken(Toy): errors = {'bad-mood': ()}\nmade = Broken()",
        "backend 'broken:made' declares the unknown error kind 'bad-mood': choose from checkpoint-kind",
    ),
    "has no versions": ("class Broken(Toy): versions = None\nmade = Broken()", "its versions are not a mapping"),
    "names a file that is not there": (
        "class Broken(Toy): expectations = 'no.toml'\nmade = Broken()",
        "cannot read the expectation file no.toml: No such file or directory",
    ),
}

LOADING_VERBS = {
    "run": ["run"],
    "run in process": ["run", IN_PROCESS],
    "explain": ["explain", "order.six-steps.leaf"],
    "repro": ["repro", "order.six-steps.leaf"],
    "check-backend": ["check-backend", "reference"],
    "findings": ["findings"],
    "expect check": ["expect", "check"],
    "expect update": ["expect", "update", "three.jsonl"],
    "fuzz": ["fuzz"],
    "mutants": ["mutants", "--backend", "toy:backend"],
    "bench": ["bench", "--quick"],
    "packer": ["packer", "hooklaw.packing.control:Right"],
}


@pytest.fixture
def old(tmp_path):
    """Return a check that the results and the report of an earlier run are unchanged, and no other files exist."""
    results = made.write(tmp_path / "old.jsonl", made.three()[0])
    report = tmp_path / "old.html"
    report.write_text("the report of yesterday")
    (tmp_path / "file").write_text("no folder")
    before = results.read_bytes()

    def untouched():
        left = {one.name for one in tmp_path.iterdir()} - {"__pycache__", "broken.py", "file", "rules", "expect.toml"}
        return (results.read_bytes(), report.read_text(), left) == (
            before,
            "the report of yesterday",
            {"old.jsonl", "old.html"},
        )

    return untouched


def refused(done, said):
    """Whether the program exited with 3 after one sentence that contains the text."""
    return (done.returncode, said in complaint(done)) == (3, True)


@pytest.mark.parametrize("case", BROKEN_BACKENDS.values(), ids=BROKEN_BACKENDS)
def test_broken_backend(judge, adapter, old, case):
    """A backend that cannot be loaded is one sentence, and old results are kept."""
    text, said = case
    adapter(text)
    done = judge("--results=old.jsonl", "--report=old.html", IN_PROCESS, backend="broken:made")

    assert refused(done, said)
    assert old()


@pytest.mark.parametrize("name", ["leaves while importing", "lacks a verb"])
def test_broken_backend_in_a_worker(judge, adapter, old, name):
    """The sentence is the same if rules are contained."""
    text, said = BROKEN_BACKENDS[name]
    adapter(text)
    done = judge("--results=old.jsonl", "--report=old.html", backend="broken:made")

    assert refused(done, said)
    assert old()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import ctypes; ctypes.string_at(0)", "the process died: Segmentation fault"),
        ("import os; os._exit(0)", "the process died without a word"),
    ],
)
def test_import_that_kills_the_process(judge, adapter, old, text, said):
    """A backend that ends its process when loaded is given up after a few attempts."""
    adapter(text)
    done = judge("--results=old.jsonl", backend="broken:made", timeout=60)

    assert refused(done, f"hooklaw: backend 'broken:made' cannot be loaded, each time {said}")
    assert old()


def test_import_that_never_ends(verb, adapter, old, monkeypatch, tmp_path):
    """A backend that hangs when loaded is one sentence, which names the line where it hangs."""
    monkeypatch.setattr(supervisor, "LOADING_LIMIT", 2.0)
    monkeypatch.syspath_prepend(tmp_path)
    adapter("import time\nwhile True: time.sleep(1)")
    done = verb("run", "--results=old.jsonl", "--backend", "broken:made", "--rules", TOY_RULES)

    assert refused(done, "hooklaw: backend 'broken:made' cannot be loaded: did not end within 2 s [")
    assert "broken.py:3]" in complaint(done)
    assert old()


@pytest.mark.parametrize("how", [(), (IN_PROCESS,)], ids=["isolated", "in process"])
def test_grad_mode_that_stays_off(judge, adapter, old, how):
    """A backend that turns grad mode off when loaded, for good, is one sentence."""
    adapter(
        "from hooklaw.model.adapter import Reference\n"
        "class Broken(Reference):\n    def is_grad_enabled(self): return False\n"
        "made = Broken()"
    )
    done = judge("--results=old.jsonl", *how, backend="broken:made")

    assert refused(done, "backend 'broken:made' turned grad mode off when it was loaded, and its reset does not turn")
    assert old()


@pytest.mark.parametrize("how", [(), (IN_PROCESS,)], ids=["isolated", "in process"])
def test_words_that_no_terminal_should_see(judge, adapter, how):
    """Half a character, an escape and a mark that reverses the line are shown as escapes, and cost one rule only."""
    adapter(
        "class Broken(Toy):\n"
        "    def register_hook(self, tensor, hook): raise RuntimeError('\\ud800\\x1b[2J\\u202e\\x00')\n"
        "made = Broken()"
    )
    done = judge("--results=r.jsonl", *how, backend="broken:made")

    assert done.returncode == 1, done.stderr
    assert "RuntimeError: \\ud800\\x1b[2J\\u202e\\x00" in done.stdout


@pytest.mark.parametrize("how", [(), (IN_PROCESS,)], ids=["isolated", "in process"])
def test_what_nobody_foresaw(judge, adapter, old, tmp_path, how):
    """A backend whose attributes raise is one sentence too."""
    odd = "class Odd(str):\n    def __str__(self): raise ValueError('no word')\n"
    adapter(odd + "class Broken(Toy): versions = {'toy': Odd()}\nmade = Broken()")
    done = judge("--results=old.jsonl", *how, backend="broken:made")

    assert refused(done, f"hooklaw: the run broke: ValueError: no word ({tmp_path}/broken.py:3)")
    assert old()


def test_verb_that_interrupts(judge, adapter, tmp_path):
    """In this process a KeyboardInterrupt raised by a verb ends the run like Ctrl-C, and is not recorded."""
    adapter("class Broken(Toy):\n    def register_hook(self, *_): raise KeyboardInterrupt\nmade = Broken()")
    done = judge("--results=r.jsonl", IN_PROCESS, backend="broken:made")

    assert refused(done, "hooklaw: interrupted, 0 of 5 rules on 'broken:made' have a result")
    assert records.read(tmp_path / "r.jsonl", incomplete=True)[0].results == {}


@pytest.mark.parametrize("how", [(), (IN_PROCESS,)], ids=["isolated", "in process"])
def test_verb_that_raises(judge, adapter, tmp_path, how):
    """A programming error in a verb names backend, verb and line, and makes the run exit 3."""
    adapter("class Broken(Toy):\n    def sum(self, tensor):\n        return tensor.nothing\nmade = Broken()")
    done = judge("--results=r.jsonl", *how, backend="broken:made")
    said = "backend 'toy': verb 'sum' raised AttributeError: 'Tensor' object has no attribute 'nothing'"

    assert refused(done, f"hooklaw: 3 rules could not be judged, toy.order first: {said} ({tmp_path}/broken.py:4)")
    assert records.read(tmp_path / "r.jsonl")[0].complete


def test_unknown_backend(judge, old):
    """A wrong name is refused before anything runs."""
    done = judge("--results=old.jsonl", backend="torch-eagr")

    assert refused(done, "hooklaw: no backend has the name 'torch-eagr': did you mean torch-eager")
    assert old()


def test_one_unknown_backend_of_two(judge, old):
    """A wrong second name is refused before the first backend runs."""
    done = judge("--backend", "paddel", "--results=old.jsonl")

    assert refused(done, "hooklaw: no backend has the name 'paddel': did you mean paddle?")
    assert old()


def test_one_broken_backend_of_two(judge, adapter, tmp_path):
    """A backend that cannot be loaded does not affect another one's results, and the exit code is the worst."""
    adapter("import nowhere")
    done = judge("--backend", "broken:made", "--results=r.jsonl", "--report=r.html")

    assert refused(done, "cannot import module broken")
    assert [run.header.backend for run in records.read(tmp_path / "r.jsonl")] == ["toy:backend"]
    assert (tmp_path / "r.html").exists()


def test_one_backend_twice(judge, old):
    """A backend named twice is refused."""
    done = judge("--backend", "toy:backend", "--results=old.jsonl")

    assert refused(done, "hooklaw: a backend is named twice: name each once")
    assert old()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-k", "nothing"), "no rule matches 'nothing': "),
        (("-k", "nothing", IN_PROCESS), "no rule matches 'nothing': "),
        (("-k", "ordr", IN_PROCESS), "no rule matches 'ordr': did you mean order?"),
        (("-k", "order and not order", IN_PROCESS), "the selection matches no rule: `hooklaw list` shows all"),
        (("-k", "and or"), "Wrong expression passed to '-k': and or: "),
        (("-k", "and or", IN_PROCESS), "Wrong expression passed to '-k': and or: "),
        (("--import", "nowhere", IN_PROCESS), "--import nowhere: cannot import the module: ModuleNotFoundError"),
        (("--expectations", "no.toml", IN_PROCESS), "no.toml: No such file or directory"),
        (("--expectations", ".", IN_PROCESS), ": Is a directory"),
        (("--rules", "nowhere"), "no rules are at 'nowhere': name a folder or a package"),
        (("--rules", ".", IN_PROCESS), "the selection matches no rule"),
    ],
)
def test_bad_option(judge, old, words, said):
    """An invalid option is one sentence."""
    done = judge("--results=old.jsonl", "--report=old.html", *words)

    assert refused(done, said)
    assert old()


@pytest.mark.parametrize(
    "written",
    [entry(outcome="pass"), "[[expect]\n", entry(why="x"), entry(when="paddle>3")],
    ids=["outcome", "no TOML", "unknown key", "unknown package"],
)
def test_malformed_expectations(judge, old, tmp_path, written):
    """A malformed expectation file is named with the line before anything runs."""
    (tmp_path / "expect.toml").write_text(written)
    done = judge("--results=old.jsonl", "--expectations", "expect.toml", IN_PROCESS)

    assert refused(done, f"hooklaw: {tmp_path}/expect.toml:1: ")
    assert old()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nowhere", "the chapter test_own.py does not import: ModuleNotFoundError: No module named 'nowhere'"),
        ("def (:", "the chapter test_own.py does not import: SyntaxError: invalid syntax"),
        (SLOW.replace("slow.second", "slow.first"), "rule id 'slow.first' is registered twice, first by test_own.py"),
        (SLOW.replace("slow.first", "slow"), "rule id 'slow' is malformed"),
    ],
    ids=["import", "syntax", "duplicate", "malformed"],
)
def test_broken_chapter(judge, old, tmp_path, text, said):
    """A chapter that cannot be imported, or has a malformed rule, is named."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test_own.py").write_text(text)
    done = judge("--results=old.jsonl", IN_PROCESS, rules="rules")

    assert refused(done, said)
    assert old()


def test_broken_chapter_in_a_worker(judge, old, tmp_path):
    """The sentence is the same if rules are contained."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test_own.py").write_text("import nowhere")
    done = judge("--results=old.jsonl", rules="rules")

    assert refused(done, "the chapter test_own.py does not import: ModuleNotFoundError")
    assert old()


@pytest.mark.parametrize("option", ["results", "report"])
@pytest.mark.parametrize(
    ("path", "why"),
    [("file/x", "Not a directory"), ("file/folder/x", "Not a directory"), (".", "Is a directory")],
)
def test_cannot_write(judge, old, option, path, why):
    """A file that cannot be written is refused before anything runs."""
    done = judge(f"--{option}={path}")

    assert refused(done, f"cannot write the {option} to")
    assert refused(done, f": {why}; name another file with --{option}=FILE")
    assert (done.stdout, old()) == ("", True)


def test_results_and_report_in_one_file(judge, old):
    """The report must not overwrite the results."""
    done = judge("--results=old.jsonl", "--report=old.jsonl")

    assert refused(done, "old.jsonl is to hold both the results and the report: name two files")
    assert old()


def test_disk_that_is_full(judge, tmp_path):
    """A full disk ends the run with one sentence, and keeps what was written before."""
    (tmp_path / "small.py").write_text("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))")
    done = judge(IN_PROCESS, "--import", "small", "--results=r.jsonl")

    assert refused(done, "cannot write more results to")
    assert "r.jsonl: File too large" in done.stderr
    assert (tmp_path / "r.jsonl").read_text().startswith('{"kind":"header"')


BAD_RESULTS = {
    "absent": (None, "cannot read "),
    "empty": (lambda text: "", "is empty: its run never started"),
    "foreign": (lambda text: "<html>\n", ":1: not a hooklaw record"),
    "newer": (lambda text: text.replace('"hooklaw":2', '"hooklaw":7'), "has format 7, this hooklaw reads up to 2"),
    "cut in a line": (lambda text: text[:-9], ":6: the file ends in the middle of a line"),
    "without footer": (lambda text: text[: text.index('{"kind":"footer"')], "did not end, 4 of 4 rules have"),
    "without a result": (lambda text: lines_but(text, 2), "is incomplete, 3 of 4 rules have a result"),
    "without header": (lambda text: lines_but(text, 0), ":1: a result of run run-of-torch-eager, which has no header"),
    "damaged": (lambda text: text.replace('"outcome":"pass"', '"outcome":"bliss"', 1), ":2: this hooklaw cannot read"),
    "joined to itself": (lambda text: text * 2, ":7: run run-of-torch-eager has two headers"),
}


def lines_but(text, place):
    """Remove a line, counted from 0."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[:place] + lines[place + 1 :])


@pytest.mark.parametrize(("damage", "said"), BAD_RESULTS.values(), ids=BAD_RESULTS)
def test_report_of_bad_results(verb, old, tmp_path, damage, said):
    """No report is made of a damaged or incomplete result file, and an old report is kept."""
    bad = tmp_path / "file"
    bad.unlink()
    if damage:
        bad.write_text(damage((tmp_path / "old.jsonl").read_text()))
    done = verb("report", "old.jsonl", bad, "-o", "old.html")

    assert refused(done, said)
    assert str(bad) in complaint(done)
    assert old()


def test_report_of_different_rules(verb, old, tmp_path):
    """No report is made of two runs of one backend by different rules."""
    other = made.run("torch-eager", [made.rule("other.rule")], [made.passed("other.rule")])
    text = made.write(tmp_path / "file", other).read_text()
    (tmp_path / "file").write_text(text.replace("run-of-torch-eager", "another"))
    done = verb("report", "old.jsonl", "file", "-o", "old.html")

    assert refused(done, "hooklaw: old.jsonl and file both judge 'torch-eager', but by different rules")
    assert old()


@pytest.mark.parametrize("words", [("diff", "old.jsonl", "file"), ("merge", "old.jsonl", "file", "-o", "old.html")])
@pytest.mark.parametrize("case", BAD_RESULTS.values(), ids=BAD_RESULTS)
def test_diff_and_merge_of_bad_results(verb, old, tmp_path, words, case):
    """A damaged or incomplete result file is neither compared nor merged."""
    damage, said = case
    bad = tmp_path / "file"
    bad.unlink()
    if damage:
        bad.write_text(damage((tmp_path / "old.jsonl").read_text()))
    done = verb(*words)

    assert refused(done, said)
    assert (done.stdout, old()) == ("", True)


ODD_NAMES = {
    "NUL": "a\0b",
    "ESC": "a\x1b[2Jb",
    "a mark that reverses the line": "a\u202eb",
    "a line separator": "a\u2028b",
    "a megabyte": "name" * 250_000,
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
@pytest.mark.parametrize("judged", [made.run, made.packer], ids=["rules", "packer"])
@pytest.mark.parametrize(
    "words",
    [
        ("diff", "old.jsonl", "file"),
        ("diff", "old.jsonl", "file", "--format", "markdown"),
        ("merge", "old.jsonl", "file", "-o", "merged.jsonl"),
        ("merge", "file", "other", "-o", "merged.jsonl"),
        ("report", "file", "-o", "report.html"),
        ("report", "file", "other", "-o", "report.html"),
        ("expect", "update", "file", "--file", "expect.toml"),
        ("run", "--backend", "toy:backend", "--last-failed", "file"),
        ("bench", "compare", "file", "old.jsonl"),
    ],
)
def test_odd_names_in_results(verb, old, tmp_path, words, judged, name):  # noqa: PLR0913, PLR0917 - a table
    """A name in a record file neither reaches the terminal raw nor fills it."""
    versions = {"torch": name}
    rules = [made.rule("odd.rule"), made.rule(name)]
    results = [made.failed(name, detail=name, where=name), made.passed("odd.rule")]
    made.write(tmp_path / "file", judged(name, rules, results, versions=versions, notes=versions))
    other = judged(name, rules[1:], results[:1], versions=versions)
    other.header = msgspec.structs.replace(other.header, run="other")
    made.write(tmp_path / "other", other)
    done = verb(*words)
    shown = done.stdout + done.stderr

    assert done.returncode in {0, 1, 3}
    assert [letter for letter in shown if not letter.isprintable() and letter != "\n"] == []
    assert len(shown) < 10_000


@pytest.mark.parametrize(
    "text", ["[" * 10_000, '{"hooklaw":' * 10_000, '{"kind":"result","run":"r","x":' + "[" * 10_000]
)
@pytest.mark.parametrize(
    "words",
    [
        ("diff", "old.jsonl"),
        ("merge", "-o", "x"),
        ("report", "-o", "x"),
        ("expect", "update", "--file", "x"),
        ("run", "--backend", "toy:backend", "--last-failed"),
        ("bench", "compare", "file"),
    ],
)
def test_results_that_are_nested_deeply(verb, old, tmp_path, words, text):
    """A line nested ten thousand deep is no record."""
    whole = (tmp_path / "old.jsonl").read_text()
    for before in ("", whole):
        (tmp_path / "file").write_text(before + text + "\n")

        assert refused(verb(*words, "file"), f"hooklaw: file:{len(before.splitlines()) + 1}: ")


def test_a_lone_surrogate_in_results(verb, tmp_path, old):
    """Half a character is not JSON."""
    text = (tmp_path / "old.jsonl").read_text().replace('"where":""', '"where":"\\ud800"', 1)
    (tmp_path / "file").write_text(text)

    assert refused(verb("diff", "old.jsonl", "file"), "file:2: this hooklaw cannot read the line (JSON is malformed")


def test_an_odd_path(verb):
    """A file's name is shown like any other name."""
    assert refused(verb("diff", "a\x1b[2Jb", "\udcff"), "hooklaw: cannot read a\\x1b[2Jb: No such file")


@pytest.mark.parametrize("name", ["old.jsonl", "./old.jsonl"])
def test_merge_over_its_input(verb, old, name):
    """The merged file must not overwrite what was merged."""
    assert refused(verb("merge", "old.jsonl", "-o", name), "is one of the files to merge: name another file with -o")
    assert old()


@pytest.mark.parametrize(("path", "why"), [("file/x", "Not a directory"), (".", "Is a directory")])
def test_merge_cannot_be_written(verb, old, path, why):
    """A merged file that cannot be written is named."""
    assert refused(verb("merge", "old.jsonl", "-o", path), f"cannot write the records to {path}: {why}; name another")
    assert old()


@pytest.mark.parametrize(("path", "why"), [("file/x", "Not a directory"), (".", "Is a directory"), ("/", "Is a dir")])
def test_report_cannot_be_written(verb, old, tmp_path, path, why):
    """A report that cannot be written is named."""
    done = verb("report", "old.jsonl", "-o", path)

    assert refused(done, f"cannot write the report to {path}: {why}")
    assert old()


def test_report_over_its_results(verb, old):
    """A report must not overwrite its results."""
    done = verb("report", "old.jsonl", "-o", "./old.jsonl")

    assert refused(done, "old.jsonl is one of the result files")
    assert old()


@pytest.fixture
def interrupted(environment, tmp_path):
    """Return a run that is interrupted by Ctrl-C once a line of text appears on stderr, or in a file."""

    def run(*words, when):
        command = [sys.executable, "-m", "hooklaw", "run", *map(str, words)]
        with started(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 60
            while not when() and time.monotonic() < deadline:
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGINT)
            process.stdout, error = "", process.communicate(timeout=60)[1]
        return subprocess.CompletedProcess(command, process.returncode, "", error)

    return run


@pytest.mark.parametrize("how", [(), (IN_PROCESS,)], ids=["isolated", "in process"])
def test_interrupted_in_a_rule(interrupted, verb, tmp_path, how):
    """Ctrl-C keeps what was recorded, the footer says interrupted, and no reader takes it for a complete run."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test_slow.py").write_text(SLOW)
    results = tmp_path / "r.jsonl"
    words = ("--backend", "toy:backend", "--rules", "rules", "--results=r.jsonl", "--report=r.html", *how)
    done = interrupted(*words, when=lambda: results.exists() and '"slow.first","outcome"' in results.read_text())
    (run,) = records.read(results, incomplete=True)

    assert refused(done, "hooklaw: interrupted, 1 of 2 rules on 'toy:backend' have a result")
    assert (list(run.results), run.footer.interrupted, run.complete) == (["slow.first"], True, False)
    assert refused(verb("report", "r.jsonl"), "'toy:backend' was interrupted, 1 of 2 rules have a result")
    assert {"r.jsonl", "rules"} == {one.name for one in tmp_path.iterdir()}


@pytest.mark.parametrize("how", [(), (IN_PROCESS,)], ids=["isolated", "in process"])
def test_interrupted_while_loading(interrupted, adapter, old, tmp_path, how):
    """Ctrl-C before the first rule keeps old results, and does not report them as new."""
    adapter("import pathlib, time; pathlib.Path('rules').touch(); time.sleep(60)")
    words = ("--backend", "broken:made", "--rules", TOY_RULES, "--results=old.jsonl", *how)
    done = interrupted(*words, when=(tmp_path / "rules").exists)

    assert refused(done, "hooklaw: interrupted")
    assert old()


@pytest.mark.parametrize("words", LOADING_VERBS.values(), ids=LOADING_VERBS)
def test_import_that_fails(verb, tmp_path, words):
    """Every verb that loads a backend takes --import, and names the module that cannot be imported."""
    made.write(tmp_path / "three.jsonl", made.three()[0])

    done = verb(*words, "--import", "nowhere")

    assert done.returncode == 3
    assert "--import nowhere: cannot import the module: ModuleNotFoundError" in complaint(done)
