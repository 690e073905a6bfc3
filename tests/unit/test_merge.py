"""Merging records: shards become the run that they are of, and what does not belong together is refused."""

import msgspec
import pytest

import made_records as made
from hooklaw.errors import RecordConflictError, ShardError
from hooklaw.law.rule import Level, digest
from hooklaw.results.merge import lines, merged
from hooklaw.results.records import Run, Writer, read_all
from hooklaw.results.shards import Part, part
from hooklaw.results.verdict import Outcome, Stale

RULES = [made.rule(f"order.rule-{number}") for number in range(40)]
VERSIONS = {"torch": "2.13.0", "python": "3.13.1", "os": "Linux 6.1", "cpu": "EPYC 1"}


def whole(**parts):
    """Make a run in which every third rule fails."""
    results = [(made.passed if place % 3 else made.failed)(rule.id) for place, rule in enumerate(RULES)]
    return made.run("toy", RULES, results, **({"versions": VERSIONS} | parts))


def shard(number, count=3, run=None, **parts):
    """Make a shard of the run."""
    run, own = run or whole(), Part(number, count)
    taken = [rule for rule in run.header.rules if own.takes(rule.id)]
    results = {rule.id: run.results[rule.id] for rule in taken}
    changed = {
        "run": f"shard-{number}-of-{count}",
        "rules": taken,
        "digest": digest(taken),
        "collected": len(taken),
        "shard": own.shard_of(run.header.rules),
        "command": f"hooklaw run --backend toy --shard {number}/{count}",
    }
    header = msgspec.structs.replace(run.header, **(changed | parts))
    footer = msgspec.structs.replace(run.footer, run=header.run, results=len(taken))
    return Run(header, results, footer, f"{number}.jsonl")


def refusal(*runs):
    """Return the sentence with which runs are refused."""
    with pytest.raises(RecordConflictError) as caught:
        merged(runs)
    return str(caught.value)


@pytest.mark.parametrize("count", [2, 3, 5, 60])
def test_shards_make_up_the_rules(count):
    """Each rule is in one shard, whatever else is selected."""
    taken = [[number for number in range(1, count + 1) if Part(number, count).takes(rule.id)] for rule in RULES]

    assert {len(numbers) for numbers in taken} == {1}


def test_shards_are_of_like_size():
    """No shard has much more to do than another."""
    sizes = [sum(Part(number, 4).takes(f"a.rule-{place}") for place in range(1000)) for number in range(1, 5)]

    assert sum(sizes) == 1000
    assert min(sizes) > 200


def test_a_shard_stays_where_it_is():
    """Which shard a rule is in is part of the command line's promise: machines with other Pythons agree."""
    assert [rule.id for rule in RULES[:8] if Part(1, 2).takes(rule.id)] == [
        "order.rule-1",
        "order.rule-3",
        "order.rule-4",
        "order.rule-7",
    ]


@pytest.mark.parametrize(
    "text", ["", "2", "0/5", "6/5", "1/0", "-1/5", "1/5/9", "a/b", "1 / 5", "1.0/5", "9999999/9999999"]
)
def test_no_shard(text):
    """What names no shard is answered with how to name it."""
    with pytest.raises(ShardError, match=f"--shard {text}: write the number of the shard and how many there are"):
        part(text)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_shards_become_the_whole(order):
    """Every cell of the merged run is that of the whole run, and so are its rules, its counts and its digest."""
    run = whole()
    (found,) = merged([shard(number) for number in order])
    cells = {rule: msgspec.structs.replace(result, run="") for rule, result in found.results.items()}

    assert cells == run.results
    assert list(found.results) == list(run.results)
    assert (found.header.rules, found.header.digest) == (run.header.rules, run.header.digest)
    assert (found.header.shard, found.complete, found.count()) == (None, True, run.count())
    assert found.header.command == "hooklaw run --backend toy"


def test_merged_files_are_read(tmp_path):
    """What was merged is a record file like others, and can be merged again."""
    runs = merged([shard(number) for number in (1, 2, 3)])
    with Writer(tmp_path / "merged.jsonl") as writer:
        for line in lines([*runs, made.three()[0]]):
            writer.write(msgspec.structs.replace(line, run=line.run or "run-of-torch-eager"))
    found = read_all([tmp_path / "merged.jsonl"])

    assert [run.header.title for run in merged(found)] == ["toy", "torch-eager"]


def test_shards_of_other_processors():
    """The machines of the shards may differ in the kernel and the processor: both are said."""
    runs = [shard(1), shard(2, versions=VERSIONS | {"os": "Linux 6.5", "cpu": "EPYC 2"}), shard(3)]
    (found,) = merged(runs)

    assert found.header.versions == VERSIONS | {"os": "Linux 6.1 / Linux 6.5", "cpu": "EPYC 1 / EPYC 2"}


def test_shards_of_two_systems():
    """Shards of two systems, versions or conditions are two runs."""
    mac = {"versions": VERSIONS | {"os": "Darwin 24"}}
    runs = [shard(number, **parts) for number in (1, 2, 3) for parts in ({}, mac, {"condition": "float16"})]

    assert len(merged(runs)) == 3


def test_a_missing_shard():
    """A missing shard is named, with how to get it."""
    assert refusal(shard(1), shard(3)) == (
        "shard 2 of 3 of the run of 'toy' on torch 2.13.0 is missing; found: 1, 3: "
        "run with --shard 2/3, or name its file"
    )


def test_missing_shards():
    """Of many missing shards the first are named."""
    assert "shards 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 9 more of 20 of the run of 'toy'" in refusal(shard(1, 20))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (shard(2, versions=VERSIONS | {"torch": "2.14.0"}), "shard 2/3 in 2.jsonl was made on torch 2.14.0, python"),
        (shard(2, 4), "2.jsonl is shard 2/4 of other shards"),
        (
            shard(2, run=made.run("toy", RULES[1:], [made.passed(rule.id) for rule in RULES[1:]], versions=VERSIONS)),
            "shard 2/3 in 2.jsonl was made by other rules, or by another selection",
        ),
    ],
)
def test_a_shard_of_something_else(other, why):
    """A shard that is there but does not belong to the others is named with the reason."""
    assert f"is missing; found: 1, 3; {why}" in refusal(shard(1), shard(3), other)


def test_a_shard_twice():
    """A shard that was run twice is read once, if both agree."""
    runs = [shard(1), shard(2), shard(3), shard(2, run=whole(started="2026-11-23T00:00:00+00:00"))]

    assert merged(runs)[0].count() == whole().count()


def changed(run, rule_id, result):
    """Return a run with another result of one rule."""
    return Run(run.header, run.results | {rule_id: result}, run.footer, "other.jsonl")


def test_a_shard_twice_with_other_results():
    """A shard that was run twice and came out differently is refused."""
    second = shard(2)
    rule_id = next(iter(second.results))
    other = changed(second, rule_id, made.failed(rule_id, detail="something else"))

    assert (
        f"2.jsonl and other.jsonl both hold shard 2/3 of 'toy' and disagree about 1 of {len(second.results)} rules, "
        f"{rule_id} first: "
    ) in refusal(shard(1), second, shard(3), other)


def test_shards_that_are_not_the_whole():
    """Shards whose rules do not make up the whole are refused: a file was edited, or a rule was changed between."""
    broken = shard(2)
    header = msgspec.structs.replace(broken.header, rules=broken.header.rules[:-1])

    assert "do not make up the run that they are of" in refusal(shard(1), Run(header, {}, broken.footer), shard(3))


def test_stale_entries_are_said_once():
    """An entry that is stale in every shard is one stale entry."""
    entry = Stale("order.gone", "matches no rule", "toy.toml", 3)
    runs = [shard(number) for number in (1, 2, 3)]
    for run in runs:
        run.footer = msgspec.structs.replace(run.footer, stale=[entry])

    assert merged(runs)[0].stale == [entry]


def test_runs_of_other_backends_versions_and_machines():
    """Backends, conditions, versions and machines stand side by side."""
    runs = [
        whole(),
        whole(condition="float16"),
        whole(versions=VERSIONS | {"torch": "2.14.0"}),
        whole(versions=VERSIONS | {"os": "Darwin 24"}),
        *made.three()[:3],
    ]

    assert merged(runs) == runs


def test_one_run_twice():
    """Of two runs that judged the same and agree the first one stays."""
    first = whole()

    assert merged([first, whole(started="2026-11-23T00:00:00+00:00")]) == [first]


def test_one_run_twice_with_other_results():
    """Two runs that judged the same and disagree are refused, with the first rule and both outcomes."""
    other = changed(whole(), "order.rule-1", made.failed("order.rule-1", Outcome.CRASH, detail="the process died"))

    assert refusal(whole(), other) == (
        "toy.jsonl and other.jsonl both judge 'toy' on torch 2.13.0 and disagree about 1 of 40 rules, "
        "order.rule-1 first: pass and crash (the process died); leave one of them out"
    )


def test_one_backend_by_other_rules():
    """Two selections of one backend are refused: nothing could be read off their sum."""
    other = made.run("toy", RULES[:2], [made.passed(rule.id) for rule in RULES[:2]], versions=VERSIONS)

    assert "both judge 'toy', but by different rules" in refusal(whole(), other)


def test_another_law():
    """A rule that says something else in another file is another law, whatever the backend."""
    weaker = [made.rule("order.rule-0", level=Level.SHOULD)]
    other = made.run("paddle", weaker, [made.passed("order.rule-0")], suite="0.2.0")

    assert refusal(whole(), other) == (
        "toy.jsonl and paddle.jsonl judge by different laws: rule 'order.rule-0' is not the same in "
        "hooklaw 0.1.0 and 0.2.0; run both with one hooklaw"
    )
