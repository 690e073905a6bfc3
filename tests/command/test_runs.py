"""Many runs: comparing two, executing one in parts, and joining what machines recorded."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

import made_records as made
from helpers import TOY_RULES, entry, started
from hooklaw.results import records
from hooklaw.results.diff import Change


@pytest.fixture
def two(tmp_path):
    """Write two files of the same backends, in which rules changed in several ways."""
    old, new = made.three()[:2]
    header = msgspec.structs.replace(
        new.header, backend="torch-eager", versions=new.header.versions | {"torch": "2.14"}
    )
    made.write(tmp_path / "old.jsonl", old, made.three()[2])
    made.write(tmp_path / "new.jsonl", msgspec.structs.replace(new, header=header), made.three()[2])
    return "old.jsonl", "new.jsonl"


def test_diff(verb, two):
    """The heading has what differs by version and the counts; below it are the changed rules, the worst first."""
    done = verb("diff", *two)
    heading, *cells = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (1, "")
    assert heading == "torch-eager (torch 2.13.0 -> 2.14): 3 regressed, 1 allowed"
    assert cells[:3] == [
        "  REGRESSED         order.first (MUST)  pass -> fail",
        "                    event 1 should be 'first', was 'second' with [1.0, 2.0]  [hooklaw/rules/test_order.py:12]",
        "  REGRESSED         order.second (SHOULD)  pass -> fail",
    ]
    assert "paddle (paddle 3.3.1): 2 still failing, 1 unchanged" in done.stdout


def test_diff_the_other_way(verb, two):
    """What holds again is fixed, with what was seen before."""
    done = verb("diff", *reversed(two))

    assert done.returncode == 2
    assert "  FIXED             unpack.third (MUST)  crash -> pass\n" in done.stdout
    assert "was: Fatal Python error: Segmentation fault" in done.stdout


def test_diff_of_the_same(verb, two):
    """A file does not differ from itself; a failure that is still there is no change."""
    assert verb("diff", two[1], two[1]).returncode == 0


def test_diff_as_json(verb, two):
    """The comparison as data: for each pair of runs the counts of every change, and the cells that changed."""
    found = json.loads(verb("diff", *two, "--format", "json").stdout)
    eager = found[0]

    assert [one["backend"] for one in found] == ["torch-eager", "paddle"]
    assert set(eager["counts"]) == set(Change)
    assert (eager["counts"]["regressed"], eager["exit"]) == (3, 1)
    assert [one["versions"]["torch"] for one in (eager["old"], eager["new"])] == ["2.13.0", "2.14"]
    assert {one["rule"]: (one["change"], one["old"]["outcome"], one["new"]["outcome"]) for one in eager["cells"]}[
        "unpack.third"
    ] == ("regressed", "pass", "crash")


def test_diff_as_markdown(verb, two):
    """The comparison as markdown is a table, and a list of what changed."""
    lines = verb("diff", *two, "--format", "markdown").stdout.splitlines()

    assert lines[0].startswith("| backend | versions | regressed | fails differently | lost | fixed |")
    assert "| torch-eager | torch 2.13.0 -> 2.14 | 3 | 0 | 0 | 0 |" in lines[2]
    assert any(line.startswith("- **regressed** `order.first` (MUST) on torch-eager, pass -> fail: ") for line in lines)


def test_many_new_rules_are_cut_short(verb, tmp_path):
    """Of many rules that came or went the first are named; those that fail all are."""
    rules = [made.rule(f"order.rule-{number}") for number in range(60)]
    few = made.run("toy", rules[:1], [made.passed(rules[0].id)])
    many = made.run("toy", rules, [made.passed(rule.id) for rule in rules])
    made.write(tmp_path / "few", few)
    made.write(tmp_path / "many", many)
    many.results["order.rule-40"] = made.failed("order.rule-40")
    made.write(tmp_path / "failing", many)

    assert "  GONE              and 39 more" in verb("diff", "many", "few").stdout
    assert "  NEW               and 39 more" in verb("diff", "few", "many").stdout
    assert verb("diff", "few", "failing").stdout.splitlines()[1:] == [
        "  NEW               order.rule-40 (MUST)  absent -> fail",
        "                    event 1 should be 'first', was 'second' with [1.0, 2.0]  [hooklaw/rules/test_order.py:12]",
        "  NEW               and 58 more",
    ]


def test_shards_and_their_merging(judge, verb, tmp_path):
    """The shards of a run, merged, are the whole run in every cell; a shard may be empty."""
    words = ("--in-process", "--condition", "hooked", "--condition", "again", "--backend", "toy:backend:absent")
    judge(*words, "--results=whole.jsonl")
    shards = [f"{number}.jsonl" for number in range(1, 6)]
    for number, file in enumerate(shards, start=1):
        judge(*words, f"--shard={number}/5", f"--results={file}")
    merged = verb("merge", *shards, "-o", "merged.jsonl")
    whole, joined = (records.read(tmp_path / name) for name in ("whole.jsonl", "merged.jsonl"))

    assert merged.returncode == 0, merged.stderr
    assert [cells(run) for run in joined] == [cells(run) for run in whole]
    assert [run.header.digest for run in joined] == [run.header.digest for run in whole]
    assert merged.stdout.splitlines()[0].startswith("merged.jsonl: toy:backend under hooked: 2 of 4 rules hold")
    assert verb("diff", "whole.jsonl", "merged.jsonl").returncode == 0


def cells(run):
    """Return what a run has of each rule, without the time it took."""
    return run.header.title, {
        rule: msgspec.structs.replace(result, run="", duration=0.0) for rule, result in run.results.items()
    }


def test_merging_what_report_reads(verb, tmp_path):
    """Two versions and two machines in one file are told apart by the report."""
    first = made.three()[0]
    versions = (
        {"torch": "2.13.0", "os": "Linux"},
        {"torch": "2.13.0", "os": "Darwin"},
        {"torch": "2.14.0", "os": "Linux"},
    )
    for place, each in enumerate(versions):
        header = msgspec.structs.replace(first.header, run=f"run-{place}", versions=each)
        footer = msgspec.structs.replace(first.footer, run=f"run-{place}")
        made.write(tmp_path / f"{place}.jsonl", msgspec.structs.replace(first, header=header, footer=footer))
    merged = verb("merge", "0.jsonl", "1.jsonl", "2.jsonl", "-o", "all.jsonl")
    done = verb("report", "all.jsonl", "-o", "all.html")

    assert merged.returncode == done.returncode == 0
    assert "torch-eager (torch 2.13.0, os Darwin): " in done.stdout


@pytest.mark.parametrize("text", ["6/5", "2", "x/y"])
def test_no_such_shard(judge, text):
    """A shard that does not exist is refused before anything runs."""
    done = judge("--shard", text)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"hooklaw: --shard {text}: write the number of the shard and how many there are, e.g. 2/5\n"


def test_side_by_side(judge, tmp_path):
    """Several workers give the same results as one, in the same order."""
    judge("--results=one.jsonl", "--condition", "hooked")
    done = judge("--results=three.jsonl", "--condition", "hooked", "-j", "3")
    (one,), (three,) = (records.read(tmp_path / name) for name in ("one.jsonl", "three.jsonl"))

    assert done.returncode == 1
    assert list(three.results) == list(one.results)
    assert cells(three) == cells(one)


def test_side_by_side_in_one_process(judge):
    """One process is not several workers."""
    done = judge("--in-process", "-j", "2")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "hooklaw: --in-process has no workers, and --jobs asks for several: leave one of them out\n"


CRASHING = """
import os, time
from hooklaw.law.rule import Level, observed, rule

def made(name, body):
    def test(backend, trace):
        "It ends."
        body()
    test.__name__ = f"test_{name}"
    test.__module__ = __name__
    return rule(f"many.{name}", level=Level.MAY, basis="observed", sources=[observed("a test")])(test)

for number in range(6):
    globals()[f"test_{number}"] = made(f"rule-{number}", os.abort if number in (1, 4) else (lambda: None))
"""


def test_a_crash_side_by_side(judge, tmp_path):
    """A crash costs one rule its result, whichever worker it was; JUnit XML is whole."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test_many.py").write_text(CRASHING)
    done = judge("-j", "2", "--results=r.jsonl", "--junitxml=x.xml", rules="rules", apart=True)
    (run,) = records.read(tmp_path / "r.jsonl")
    cases = ET.parse(tmp_path / "x.xml").getroot().iter("testcase")  # noqa: S314 - our own

    assert done.returncode == 1
    assert [rule for rule, result in run.results.items() if result.outcome == "crash"] == ["many.rule-1", "many.rule-4"]
    assert [case.get("name") for case in cases if case.find("error") is not None] == [
        "many.rule-1[toy:backend]",
        "many.rule-4[toy:backend]",
    ]


def test_quiet(judge):
    """A quiet run prints the verdicts alone."""
    done = judge("--in-process", "-q", "--backend", "toy:backend:absent", "--allow-not-run")

    assert (done.returncode, done.stderr) == (1, "")
    assert [line.partition(" (")[0] for line in done.stdout.splitlines()] == ["toy:backend", "toy:backend:absent"]


def test_no_progress_without_a_terminal(judge):
    """In a log there is no progress."""
    assert judge("--in-process").stderr == ""


@pytest.mark.parametrize(
    ("words", "shown"), [((), True), (("-q",), False), (("--backend", "toy:backend:absent", "--allow-not-run"), False)]
)
def test_progress_is_one_line(environment, tmp_path, words, shown):
    """On a terminal progress is a line that is rewritten and cleared; none is there where nothing is judged."""
    backend = () if "--backend" in words else ("--backend", "toy:backend")
    command = [sys.executable, "-m", "hooklaw", "run", "--rules", str(TOY_RULES), "--in-process", *backend, *words]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs) as run:
        os.close(theirs)
        run.communicate()
    said = _all_of(ours)

    assert ("toy:backend: 5/5 toy.free" in said) is shown
    assert "\n" not in said
    assert said.endswith("\r\x1b[K") is shown


def _all_of(terminal):
    said = b""
    try:
        while chunk := os.read(terminal, 4096):
            said += chunk
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    return said.decode()


@pytest.fixture
def _own_memory(tmp_path_factory, monkeypatch):
    """Keep what failed in a folder of this test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("memory")))


@pytest.mark.usefixtures("_own_memory")
def test_last_failed(judge, tmp_path):
    """Only what failed is run again, until it holds or is known; then everything is."""
    judge("--in-process")
    again = judge("--in-process", "--last-failed", "--results=r.jsonl")
    (run,) = records.read(tmp_path / "r.jsonl")
    (tmp_path / "expect.toml").write_text(entry())
    known = judge("--in-process", "--last-failed", "--expectations", "expect.toml")
    done = judge("--in-process", "--last-failed", "--expectations", "expect.toml")

    assert (again.returncode, list(run.results), run.header.selection) == (1, ["toy.broken"], "(last failed)")
    assert "0 of 1 rule hold, 1 known divergence" in known.stdout
    assert "2 of 4 rules hold" in done.stdout
    assert done.stderr == "nothing is known to have failed in the last run: all rules are run\n"


@pytest.mark.usefixtures("_own_memory")
def test_last_failed_of_several(judge):
    """A backend and a condition in which nothing failed is left out, and what was not selected keeps its place."""
    two = ("--in-process", "--backend", "toy:backend:again", "--condition", "hooked", "--condition", "again")
    judge(*two)
    judge("--in-process", "--backend", "toy:backend:again", "-k", "not broken", "--condition", "again")
    done = judge(*two, "--last-failed", "-q")

    assert done.stdout.count("0 of 1 rule hold") == 4
    assert len(done.stdout.splitlines()) == 4


def test_last_failed_of_a_record(judge, tmp_path):
    """What failed can be read from a record, of another machine and of a run that was interrupted too."""
    judge("--in-process", "--results=old.jsonl")
    lines = (tmp_path / "old.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "old.jsonl").write_text("".join(line for line in lines if '"rule":"toy.order"' not in line))
    judge("--in-process", "--last-failed=old.jsonl", "--results=new.jsonl")
    (run,) = records.read(tmp_path / "new.jsonl")

    assert list(run.results) == ["toy.order", "toy.broken"]


def test_last_failed_that_is_no_more(judge, tmp_path):
    """If none of the rules that failed is chosen, nothing is run."""
    judge("--in-process", "--results=old.jsonl")
    done = judge("--in-process", "--last-failed=old.jsonl", "-k", "order")

    assert done.returncode == 3
    assert done.stderr == "hooklaw: no rule that failed before is among the chosen ones: run without --last-failed\n"


SLEEPING = """
import pathlib, time
from hooklaw.law.rule import Level, observed, rule

for number in range(4):
    def test(backend, trace, number=number):
        "It takes long."
        pathlib.Path(f"begun-{number}").touch()
        time.sleep(600)
    test.__name__ = f"test_{number}"
    globals()[f"test_{number}"] = rule(
        f"slow.rule-{number}", level=Level.MAY, basis="observed", sources=[observed("a test")]
    )(test)
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda each: each.name)
@pytest.mark.parametrize("how", ["run", "-j 2", "pytest"])
def test_a_signal_ends_the_workers(environment, tmp_path, how, ending):
    """A signal that ends the program ends its workers, whatever they do, and leaves no folder behind."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test_slow.py").write_text(SLEEPING)
    (tmp_path / "tmp").mkdir()
    plain = ["pytest", "-p", "hooklaw.plugin", "--import-mode=importlib", "-c", "/dev/null", "--rootdir=.", "rules"]
    ours = ["hooklaw", "run", "--rules", "rules", "--results=r.jsonl", "--junitxml=x.xml"]
    words = {"run": ours, "-j 2": [*ours, "-j", "2"], "pytest": plain}[how]
    command = [sys.executable, "-m", *words, "--backend", "toy:backend", "--limit=300"]
    wanted = 2 if how == "-j 2" else 1
    env = environment | {"TMPDIR": str(tmp_path / "tmp"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with started(command, cwd=tmp_path, env=env, stdout=-1, stderr=-1, text=True) as process:
        deadline = time.monotonic() + 60
        while len([*tmp_path.glob("begun-*")]) < wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        workers = _children(process.pid)
        os.kill(process.pid, ending)
        out, error = process.communicate(timeout=60)

    assert len(workers) == wanted, out + error
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
    assert [*(tmp_path / "tmp").glob("hooklaw-*/stderr")] == []
    assert process.returncode == (2 if how == "pytest" else 3)
    if how != "pytest":
        assert "hooklaw: interrupted, 0 of 4 rules on 'toy:backend' have a result" in error
        assert not records.read(tmp_path / "r.jsonl", incomplete=True)[0].complete
        assert ET.parse(tmp_path / "x.xml").getroot().get("errors") == "4"  # noqa: S314 - our own


def _children(pid):
    """Return the processes that a process has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(each) for each in listed.stdout.split()]


def test_junit_under_pytest(environment, tmp_path):
    """Under plain pytest a case of the JUnit file bears the rule's id, level and sources."""
    command = [sys.executable, "-m", "pytest", "-p", "hooklaw.plugin", "--import-mode=importlib", "-c", "/dev/null"]
    shutil.copytree(TOY_RULES, tmp_path / "rules", ignore=shutil.ignore_patterns("__pycache__"))
    words = [f"--rootdir={tmp_path}", "rules", "--backend", "toy:backend", "--junitxml=x.xml"]
    env = environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([*command, *words], cwd=tmp_path, env=env, capture_output=True, check=False)
    cases = {each.get("name"): each for each in ET.parse(tmp_path / "x.xml").getroot().iter("testcase")}  # noqa: S314 - our own
    found = [(each.get("name"), each.get("value")) for each in cases["toy.order[toy:backend]"].iter("property")]

    assert found[:2] == [("rule", "toy.order"), ("level", "MUST")]
    assert found[2][0] == "source"
    assert found[2][1].startswith("docstring toy.hook ")


def test_outputs_of_a_backend_that_does_not_load(judge, adapter, tmp_path):
    """JUnit XML says that a backend could not be loaded, so that no reader takes its absence for success."""
    adapter("import nowhere")
    judge("--junitxml=x.xml", "--badge=b.json", "--in-process", backend="broken:made")
    (case,) = ET.parse(tmp_path / "x.xml").getroot().iter("testcase")  # noqa: S314 - our own

    assert case.get("name") == "load[broken:made]"
    assert "cannot import module broken" in case.find("error").get("message")


def test_junit_of_a_machine_that_lacks_the_hardware(judge, tmp_path):
    """A run that ends with 3, since nothing was judged, is not green in the JUnit XML either."""
    done = judge("--in-process", "--junitxml=x.xml", backend="toy:backend:absent")

    assert done.returncode == 3
    assert ET.parse(tmp_path / "x.xml").getroot().get("errors") == "1"  # noqa: S314 - our own


def test_step_summary(judge, tmp_path, monkeypatch):
    """Without a name the summary is appended to the step's."""
    (tmp_path / "step.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    judge("--in-process", "--summary")

    assert (tmp_path / "step.md").read_text().startswith("before\n| backend | hold | judged |")


def test_step_summary_without_a_step(judge, monkeypatch):
    """Without a name, and outside a step, there is nowhere to write to."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    assert (
        judge("--summary").stderr
        == "hooklaw: --summary: GITHUB_STEP_SUMMARY is not set: name the file with --summary=FILE\n"
    )


def test_annotations_at_the_entry(judge, tmp_path):
    """An annotation stands at the entry's line, by its path in the repository."""
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "expect.toml").write_text("# ours\n" + entry(rule="toy.order") + entry(rule="toy.gone"))
    done = judge("--in-process", "--annotations", "github", "--expectations", "ci/expect.toml")
    lines = [line for line in done.stderr.splitlines() if line.startswith("::")]

    assert lines[0].startswith(
        "::error file=ci/expect.toml,line=1,title=toy.broken (MUST) on toy%3Abackend%3A fail::x.grad"
    )
    assert (
        "::warning file=ci/expect.toml,line=2,title=toy.order (MUST) on toy%3Abackend%3A fixed::the rule holds now"
        in (done.stderr)
    )
    assert any(line.startswith("::warning file=ci/expect.toml,line=") and "toy.gone" in line for line in lines)


def test_outputs_of_merged_shards(judge, verb, tmp_path):
    """What CI shows is made of the whole run, once its shards are joined."""
    for number in (1, 2):
        judge("--in-process", f"--shard={number}/2", f"--results={number}.jsonl")
    done = verb(
        "merge", "1.jsonl", "2.jsonl", "-o", "all.jsonl", "--junitxml=x.xml", "--badge=b.json", "--summary=s.md"
    )

    assert done.returncode == 0
    assert ET.parse(tmp_path / "x.xml").getroot().get("tests") == "5"  # noqa: S314 - our own
    assert json.loads((tmp_path / "b.json").read_text())["message"] == "1 regression"
    assert "| toy:backend | 2 | 4 | 0 | 1 |" in (tmp_path / "s.md").read_text()


@pytest.mark.parametrize("option", ["junitxml", "summary", "badge"])
def test_output_that_cannot_be_written(judge, tmp_path, option):
    """An output that cannot be written is refused before anything runs."""
    done = judge(f"--{option}=.", "--results=r.jsonl")

    assert (done.returncode, done.stdout, [*tmp_path.iterdir()]) == (3, "", [])
    assert (
        done.stderr
        == f"hooklaw: cannot write the {option} to .: Is a directory; name another file with --{option}=FILE\n"
    )


def test_two_outputs_in_one_file(judge, tmp_path):
    """Two outputs need two files."""
    done = judge("--junitxml=a", "--badge=./a")

    assert (done.returncode, [*tmp_path.iterdir()]) == (3, [])
    assert done.stderr == "hooklaw: a is to hold both the junitxml and the badge: name two files\n"
