"""`expect update` changes only entries of rules that have results, and keeps every other line."""

import pytest

import made_records as made
from helpers import complaint, entry
from hooklaw.results import expectations
from hooklaw.results.verdict import Outcome

FIRST, SECOND, THIRD, MAY = made.three()[0].header.rules
SHARED = "[defaults]\nwhen = 'torch>=2'\n"


@pytest.fixture
def file(tmp_path):
    """Return the path of the expectation file."""
    return tmp_path / "expect.toml"


def results(tmp_path, *found):
    """Write a result file of the toy, torch 2.13.0+cpu."""
    run = made.run("toy", [FIRST, SECOND, THIRD, MAY], found, versions={"torch": "2.13.0+cpu"})
    return made.write(tmp_path / "results.jsonl", run)


def all_pass(**instead):
    """Make passing results, except at the given places."""
    rules = {"first": FIRST, "second": SECOND, "third": THIRD, "may": MAY}
    return [instead.get(name) or made.passed(rule.id) for name, rule in rules.items()]


@pytest.fixture
def update(verb, tmp_path, file):
    """Return `expect update` as a function of the results."""

    def run(*found):
        done = verb("expect", "update", results(tmp_path, *found), "--file", file)
        return done, file.read_text() if file.exists() else None

    return run


def test_update_adds_what_is_new(update, file):
    """A new divergence gets an entry for this version, whose reason a person must write."""
    done, _ = update(*all_pass(first=made.failed("order.first")))
    (known,) = expectations.load(file).entries

    assert done.returncode == 0
    assert (known.rule, known.outcome, known.when) == ("order.first", ["fail"], "torch==2.13.0")
    assert known.reason.startswith("unexplained: event 1 should be")


def test_update_twice_changes_nothing_more(update):
    """A second update with the same results changes nothing."""
    found = all_pass(first=made.failed("order.first"))
    _, once = update(*found)
    done, twice = update(*found)

    assert once == twice
    assert "nothing to change" in done.stdout


def test_update_removes_what_holds(update, file):
    """An entry whose rule holds again is removed, and nothing else."""
    kept = "# head\n\n# about the second\n" + entry(rule="order.second", outcome="crash") + "# tail\n"
    file.write_text(kept.replace("# about", entry(rule="order.first", outcome=["fail", "crash"]) + "\n# about"))
    done, text = update(*all_pass(second=made.failed("order.second", Outcome.CRASH)))

    assert kept == text
    assert f"{file}: order.first holds now: entry removed\n{file}: written, 1 change\n" == done.stdout


def test_update_keeps_what_holds_by_chance(update, file):
    """An entry for a rule that holds or fails by chance stays, whichever of the two a run saw."""
    text = entry(rule="order.first", outcome=["fail", "pass"], saw="was 2")
    file.write_text(text)
    done, after = update(*all_pass())

    assert (text, "nothing to change" in done.stdout) == (after, True)


@pytest.mark.parametrize(
    ("when", "left"),
    [
        ("torch>=2.4,<2.16", "torch>=2.4,<2.16,!=2.13.*"),
        ("torch>=2.13", "torch>=2.13,!=2.13.*"),
        ("torch<2.14", "torch<2.14,!=2.13.*"),
        ("torch>=2.13,<2.14", None),
        ("torch==2.13.0", None),
        ("torch!=2.12.*", "torch!=2.12.*,!=2.13.*"),
    ],
)
def test_update_keeps_what_it_knows_of_other_versions(update, file, when, left):
    """An entry for several versions, on one of which the rule holds, is kept unchanged for the others."""
    file.write_text(entry(rule="order.first", when=when) + "# tail\n")
    done, text = update(*all_pass())
    known = [one.when for one in expectations.load(file).entries]

    assert known == ([left] if left else [])
    assert f"order.first holds now: entry {f'kept for {left}' if left else 'removed'}\n" in done.stdout
    assert text.endswith("# tail\n")
    assert not known or "nothing to change" in update(*all_pass())[0].stdout


def test_update_knows_the_reason_from_other_versions(update, file):
    """An entry of another version with the same outcome gives the reason; one with another outcome does not."""
    told = {"reason": "a view has no history", "issue": "https://example.org/1", "when": "torch<2.13"}
    file.write_text(entry(rule="order.first", **told) + entry(rule="order.second", **told))
    done, _ = update(*all_pass(first=made.failed("order.first"), second=made.failed("order.second", Outcome.CRASH)))
    first, second = expectations.load(file).entries[2:]

    assert (first.reason, first.issue, first.when) == (told["reason"], told["issue"], "torch==2.13.0")
    assert second.reason.startswith("unexplained: ")
    assert "order.first: entry added, with the reason of line 1\n" in done.stdout
    assert "order.second: entry added, write its reason\n" in done.stdout


def test_update_adds_an_outcome(update, file):
    """Another outcome of a known divergence is added to its entry, and comments stay where they are."""
    file.write_text(entry(rule="order.first").replace("'fail'", "'fail' # so far") + "# tail\n")
    done, text = update(*all_pass(first=made.failed("order.first", Outcome.TIMEOUT)))

    assert """outcome = ["fail", "timeout"] # so far""" in text
    assert text.endswith("# tail\n")
    assert "order.first: outcome timeout added" in done.stdout


ALL_THREE = entry(rule=["order.first", "order.second", "unpack.third"], outcome=None, saw="should be 'first'")
SECTION = "\n# another section\n\n"


LOOK = "should be 'first', was 'second' with [1.0, 2.0]"
UNSURE = f"unexplained: event 1 {LOOK}; it was known because the toy is a toy"


def test_update_writes_what_is_seen(update, file):
    """A new entry says what is seen; a crash looks different on each machine."""
    update(*all_pass(first=made.failed("order.first"), second=made.failed("order.second", Outcome.CRASH)))

    assert [one.saw for one in expectations.load(file).entries] == [[LOOK], []]


def test_update_completes_an_entry_that_does_not_say_what_is_seen(update, file):
    """An entry without `saw` gets it and keeps its reason; the rules of a list share their phrases."""
    file.write_text(entry(rule=["order.first", "order.second"]) + "# tail\n")
    other = made.failed("order.second", detail="event 2 should be 'a', was 'b'")
    done, text = update(*all_pass(first=made.failed("order.first"), second=other))
    known = expectations.load(file).entries

    assert {(*one.saw, one.reason, one.line) for one in known} == {
        (LOOK, "should be 'a', was 'b'", "the toy is a toy", 1)
    }
    assert text.endswith("# tail\n")
    assert "order.first: saw added\n" in done.stdout


def test_update_doubts_the_reason_of_what_fails_differently(update, file):
    """A rule that fails in another way than its entry says gets that way too, and its reason must be checked."""
    file.write_text(entry(rule="order.first", saw="sum raised KeyError"))
    done, _ = update(*all_pass(first=made.failed("order.first")))
    (known,) = expectations.load(file).entries

    assert (known.saw, known.reason) == (["sum raised KeyError", LOOK], UNSURE)
    assert f"order.first fails differently: {LOOK!r} added to saw, check its reason\n" in done.stdout
    assert "nothing to change" in update(*all_pass(first=made.failed("order.first")))[0].stdout


def test_update_of_another_outcome_keeps_saw_telling(update, file):
    """Where an entry says what is seen, an outcome that ends the process is seen by its word."""
    file.write_text(entry(rule="order.first", saw="sum raised KeyError"))
    update(*all_pass(first=made.failed("order.first", Outcome.CRASH)))
    (known,) = expectations.load(file).entries

    assert (known.outcome, known.saw) == (["fail", "crash"], ["sum raised KeyError", "crash"])


def test_update_does_not_take_the_reason_of_another_look(update, file):
    """An entry of another version explains a failure only if it looks alike."""
    file.write_text(entry(rule="order.first", when="torch<2.13", saw="sum raised KeyError"))
    update(*all_pass(first=made.failed("order.first")))

    assert expectations.load(file).entries[1].reason == f"unexplained: event 1 {LOOK}"


def test_update_removes_a_rule_from_a_list(update, file):
    """A rule that holds again leaves its list, and the other rules stay."""
    file.write_text(SHARED + ALL_THREE.replace("['order.first',", "[\n  'order.first', # why\n ") + SECTION)
    done, text = update(*all_pass(second=made.failed("order.second"), third=made.failed("unpack.third")))

    assert [one.rule for one in expectations.load(file).entries] == ["order.second", "unpack.third", "order.first"]
    assert "order.first holds now: entry kept for torch>=2,!=2.13.*" in done.stdout
    assert text.startswith(SHARED)
    assert SECTION in text


def test_update_changes_what_a_list_shares(update, file):
    """Rules of a list that change alike stay together; the entry's new range is its own, before the next comment."""
    file.write_text(SHARED + ALL_THREE + SECTION + entry(rule="toy.last"))
    _, text = update(*all_pass())

    assert SHARED + ALL_THREE + 'when = "torch>=2,!=2.13.*"\n' + SECTION + entry(rule="toy.last") == text


def test_update_keeps_the_rules_of_a_list_apart(update, file):
    """A rule with another outcome gets an entry of its own; no other rule of the list may end so."""
    file.write_text(ALL_THREE + "# tail\n")
    _, text = update(*all_pass(first=made.failed("order.first", Outcome.CRASH), third=made.failed("unpack.third")))

    assert [(one.rule, one.outcome, one.reason) for one in expectations.load(file).entries] == [
        ("unpack.third", ["fail"], "the toy is a toy"),
        ("order.first", ["fail", "crash"], UNSURE),
    ]
    assert "# tail\n" in text


def test_update_removes_a_list_that_holds(update, file):
    """A list whose rules all hold again is removed, and the defaults behind it stay."""
    file.write_text(ALL_THREE + "\n" + SHARED.replace("torch>=2", "torch==2.13.*"))
    _, text = update(*all_pass())

    assert SHARED.replace("torch>=2", "torch==2.13.*") == text


def test_update_adds_what_differs_from_the_defaults(update, file):
    """A new entry says its range and its outcome only if the defaults say otherwise."""
    file.write_text("[defaults]\noutcome = 'crash'\nwhen = 'torch==2.13.0'\n")
    _, text = update(*all_pass(first=made.failed("order.first", Outcome.CRASH), second=made.failed("order.second")))
    first, second = expectations.load(file).entries

    assert (text.count("when = "), text.count("outcome = ")) == (1, 2)
    assert (first.outcome, second.outcome, first.when) == (["crash"], ["fail"], "torch==2.13.0")


def test_update_keeps_the_comments_of_a_file_without_entries(update, file):
    """A comment in an empty file stays."""
    file.write_text("# nothing is known to break")
    _, text = update(*all_pass(first=made.failed("order.first")))

    assert text.startswith("# nothing is known to break\n\n[[expect]]\n")


@pytest.mark.parametrize(
    "result",
    [
        made.failed("unpack.third", Outcome.UNSUPPORTED),
        made.failed("unpack.third", Outcome.NOT_RUN),
        made.failed("unpack.third", Outcome.ERROR),
    ],
)
def test_update_leaves_cells_without_a_result(update, file, result):
    """A rule that was not judged keeps its entry, or gets no new one."""
    text = entry(rule="unpack.third") + entry(rule="somebody.elses")
    file.write_text(text)
    done, after = update(*all_pass(third=result))

    assert (text, f"{file}: nothing to change\n") == (after, done.stdout)


@pytest.fixture
def update_under(verb, tmp_path, file):
    """Return `expect update` as a function of the results of a run under a condition."""

    def run(condition, *found):
        rules = [FIRST, SECOND, THIRD, MAY]
        made_run = made.run("toy", rules, found, versions={"torch": "2.13.0+cpu"}, condition=condition)
        return verb("expect", "update", made.write(tmp_path / "results.jsonl", made_run), "--file", file)

    return run


def test_update_under_a_condition_adds_its_name(update_under, file):
    """A divergence that shows under a condition alone gets an entry for that condition."""
    update_under("float16", *all_pass(first=made.failed("order.first")))
    (known,) = expectations.load(file).entries

    assert (known.rule, known.condition, known.when) == ("order.first", ["float16"], "torch==2.13.0")
    assert "nothing to change" in update_under("float16", *all_pass(first=made.failed("order.first"))).stdout


def test_update_under_a_condition_knows_what_fails_without(update_under, file):
    """A divergence that is known without a condition needs no entry, whether it shows under one or not."""
    file.write_text(entry(rule="order.first"))

    for found in (all_pass(), all_pass(first=made.failed("order.first"))):
        assert "nothing to change" in update_under("thread", *found).stdout


def test_update_takes_a_condition_from_an_entry(update_under, file):
    """A rule that holds under one of an entry's conditions keeps the others; under the last one the entry goes."""
    file.write_text(entry(rule="order.first", condition=["float16", "thread"]))
    done = update_under("thread", *all_pass())

    assert "order.first holds now: entry kept under float16\n" in done.stdout
    assert [one.condition for one in expectations.load(file).entries] == [["float16"]]
    assert "entry removed" in update_under("float16", *all_pass()).stdout


def test_update_leaves_what_was_not_selected(update, file, tmp_path, verb):
    """A run of a few rules does not change entries of others."""
    file.write_text(entry(rule="order.second"))
    few = made.write(tmp_path / "few.jsonl", made.run("toy", [FIRST], [made.passed("order.first")]))
    verb("expect", "update", few, "--file", file)

    assert entry(rule="order.second") == file.read_text()


def test_update_leaves_a_may(update):
    """A MAY rule that fails needs no entry."""
    _, text = update(*all_pass(may=made.failed("unpack.may")))

    assert text is None


def test_update_leaves_other_versions(update, file):
    """An entry of other versions stays, even if its rule holds here."""
    text = entry(rule="order.first", when="torch<2")
    file.write_text(text)

    assert text == update(*all_pass())[1]


def test_update_of_a_version_that_is_none(verb, file, tmp_path):
    """An entry for a version that is not a number has no range."""
    run = made.run("toy", [FIRST], [made.failed("order.first")], versions={"toy": "of last night"})
    verb("expect", "update", made.write(tmp_path / "results.jsonl", run), "--file", file)
    (known,) = expectations.load(file).entries

    assert known.when == ""


def test_update_of_a_run_that_did_not_run(verb, file, tmp_path):
    """A machine that could not run the backend changes nothing."""
    file.write_text(entry(rule="order.first"))
    done = verb("expect", "update", made.write(tmp_path / "r.jsonl", made.three()[3]), "--file", file)

    assert (done.returncode, done.stdout) == (0, "torch-eager:cuda: not run, nothing to update\n")


@pytest.mark.parametrize("path", ["file/expect.toml", "folder"])
def test_update_cannot_write(verb, tmp_path, path):
    """A file that cannot be written is named, and nothing is left behind."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    done = verb("expect", "update", results(tmp_path, *all_pass(first=made.failed())), "--file", path)

    assert done.returncode == 3
    assert path in complaint(done)
    assert {"file", "folder", "results.jsonl"} == {one.name for one in tmp_path.iterdir()}


def test_update_refuses_a_malformed_file(update, file):
    """A malformed file is refused, and is not changed."""
    file.write_text("[[expect]\n")
    done, text = update(*all_pass(first=made.failed()))

    assert (done.returncode, text) == (3, "[[expect]\n")
    assert "is not valid TOML" in complaint(done)


def test_update_refuses_incomplete_results(verb, file, tmp_path):
    """An incomplete run changes no file."""
    path = results(tmp_path, *all_pass(first=made.failed()))
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    done = verb("expect", "update", path, "--file", file)

    assert (done.returncode, file.exists()) == (3, False)
    assert "did not end" in complaint(done)
