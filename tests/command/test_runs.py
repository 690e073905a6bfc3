"""Many runs: comparing two, executing one in parts, and joining what machines recorded."""

import json

import msgspec
import pytest

import made_records as made
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
