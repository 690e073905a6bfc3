"""Expectation files: a malformed file is refused with file and line, and an update changes only rules with results."""

import datetime as dt

import pytest

import made_records as made
from helpers import complaint, entry
from hooklaw.errors import ExpectationFileError
from hooklaw.results import expectations
from hooklaw.results.verdict import Outcome

TODAY = dt.date(2026, 6, 15)
VERSIONS = {"torch": "2.13.0+cpu", "driver": "550.1"}
FIRST, SECOND, THIRD, MAY = made.three()[0].header.rules
SHARED = "[defaults]\nwhen = 'torch>=2'\n"
ONLY = "1: an expectation file has only over, [defaults] and [[expect]] tables"
MALFORMED = {
    "no TOML": ("[[expect]\n", "1: the expectation file is not valid TOML: "),
    "no TOML further down": (entry() + "reason = \n", "5: the expectation file is not valid TOML: "),
    "no entries": ("expect = 3\n", f"{ONLY}, found a value"),
    "other tables": ("[other]\nx = 1\n", f"{ONLY}, found other"),
    "entries in a row": ('expect = [{rule = "a.b"}]\n', "1: begin every entry with a line [[expect]]"),
    "unknown key": (entry() + entry(why="x"), "5: unknown key 'why': an entry has condition, expires, issue, outcome"),
    "device without a sign": (
        entry(when="torch>=2 and device"),
        "1: when = 'torch>=2 and device' is not a version range",
    ),
    "range of a device": (entry(when="device>=2"), "1: when = 'device>=2' is not a version range"),
    "no reason": (entry(reason=None), "1: the entry has no 'reason': every entry names rule and reason"),
    "empty reason": (entry(reason=""), "1: the entry has no 'reason'"),
    "no rule": ("\n\n" + entry(rule=None), "3: the entry has no 'rule'"),
    "empty outcome": (entry(outcome=[]), "1: the entry has no 'outcome'"),
    "empty saw": (entry(saw=""), "1: saw is empty: write a phrase of what is seen, or leave it out"),
    "saw of an empty phrase": (entry(saw=["x", ""]), "1: saw is empty"),
    "saw that is no text": (entry(saw=3), "1: Expected `str`, got `int` - at `$.saw[0]`"),
    "unknown outcome": (entry(outcome="sad"), "1: outcome 'sad' cannot be expected: write fail, crash, timeout"),
    "outcome that says nothing": (entry(outcome=["fail", "error"]), "1: outcome 'error' cannot be expected"),
    "outcome that is no text": (entry(outcome=3), "1: outcome 3 cannot be expected"),
    "reason that is no text": (entry(reason=3), "1: Expected `str`, got `int` - at `$.reason`"),
    "empty list of rules": (entry(rule=[]), "1: the entry has no 'rule'"),
    "list with a rule that is no text": (entry(rule=["toy.order", 3]), "1: Expected `str`, got `int` - at `$.rule`"),
    "duplicate in a list": (entry(rule=["toy.broken"] * 2), "1: rule 'toy.broken' already has an entry in line 1"),
    "duplicate across lists": (
        entry(rule=["toy.order", "toy.broken"]) + entry(rule=["toy.last", "toy.broken"]),
        "5: rule 'toy.broken' already has an entry in line 1: merge the two",
    ),
    "duplicate by default": (
        SHARED + entry(when="torch>=2") + entry(),
        "8: rule 'toy.broken' already has an entry in line 3",
    ),
    "defaults that are no table": ("defaults = 3\n", "1: [defaults] has only outcome and when, found a value"),
    "defaults with another key": ("\n[defaults]\nrule = 'x'\n", "2: [defaults] has only outcome and when, found rule"),
    "defaults with a bad range": ("[defaults]\nwhen = 'torch>>2'\n", "1: when = 'torch>>2' is not a version range"),
    "defaults with an unknown outcome": ("[defaults]\noutcome = 'sad'\n", "1: outcome 'sad' cannot be expected"),
    "duplicate": (entry() + "\n" + entry(), "6: rule 'toy.broken' already has an entry in line 1: merge the two"),
    "bad range": (entry(when="torch>>2"), "1: when = 'torch>>2' is not a version range: write for example"),
    "range with a marker": (entry(when='torch; os_name=="nt"'), "is not a version range"),
    "range of a file": (entry(when="torch @ file:///x"), "is not a version range"),
    "unknown condition": (entry(condition="float15"), "1: no condition has the name 'float15': did you mean float16"),
    "duplicate under a condition": (
        entry(condition=["float16", "thread"]) + entry(condition="thread"),
        "6: rule 'toy.broken' already has an entry in line 1",
    ),
    "bad date": (entry(expires="soon"), "1: expires = 'soon' is not a date: write YYYY-MM-DD"),
    "date that is none": (entry(expires="2026-02-30"), "1: expires = '2026-02-30' is not a date"),
}
MALFORMED_FOR_A_BACKEND = {
    "two that apply": (entry(when="torch>=2") + entry(), "6: rule 'toy.broken' already has an entry in line 1"),
    "unknown package": (
        entry(when="paddle>=3"),
        "1: when names 'paddle', but the backend has versions of torch, driver only",
    ),
}


@pytest.fixture
def file(tmp_path):
    """Return the path of the expectation file."""
    return tmp_path / "expect.toml"


def read(file, text, versions=VERSIONS):
    """Write and read a file."""
    file.write_text(text)
    return expectations.read(file, {"toy.broken", "toy.order"}, versions, today=TODAY)


@pytest.mark.parametrize(
    ("text", "said"),
    [pytest.param(*one, id=name) for name, one in (MALFORMED | MALFORMED_FOR_A_BACKEND).items()],
)
def test_malformed(file, text, said):
    """A malformed file is refused with file and line."""
    with pytest.raises(ExpectationFileError) as caught:
        read(file, text)

    assert str(caught.value).startswith(f"{file}:")
    assert said in str(caught.value)


def test_absent(file):
    """A missing file is named."""
    with pytest.raises(ExpectationFileError, match=r"expect.toml: No such file or directory$"):
        expectations.read(file, set(), VERSIONS)


def test_no_text(file):
    """A file that is not text is named."""
    file.write_bytes(b"\xff")

    with pytest.raises(ExpectationFileError, match=r"cannot read the expectation file .*expect.toml: .*byte 0xff"):
        expectations.read(file, set(), VERSIONS)


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_empty(file, text):
    """A file without entries expects nothing."""
    assert expectations.Expectations() == read(file, text)


def test_entry(file):
    """An entry is read with all its keys, its file and its line."""
    found = read(file, "# why\n" + entry(outcome=["fail", "crash"], issue="https://x", when="torch>=2"))
    (known,) = found.known.values()

    assert (known.rule, known.outcome, known.reason) == ("toy.broken", ["fail", "crash"], "the toy is a toy")
    assert ("https://x", "torch>=2", str(file), 2) == (known.issue, known.when, known.file, known.line)


def test_outcome_by_default(file):
    """An entry that names no outcome expects a fail."""
    (known,) = read(file, entry(outcome=None)).known.values()

    assert known.outcome == ["fail"]


def test_defaults(file):
    """What the defaults say holds for each entry that does not say it itself."""
    shared = "[defaults]\noutcome = ['crash']\nwhen = 'torch>=2'\n"
    found = read(file, shared + entry(outcome=None) + entry(rule="toy.order", outcome="timeout", when=""))

    assert [(one.outcome, one.when, one.line) for one in found.known.values()] == [
        (["crash"], "torch>=2", 4),
        (["timeout"], "", 7),
    ]


def test_list_of_rules(file):
    """An entry of several rules counts for each, with the line of the entry."""
    found = read(file, entry(rule=["toy.broken", "toy.gone", "toy.order"]))

    assert [(one.rule, one.line) for one in found.known.values()] == [("toy.broken", 1), ("toy.order", 1)]
    assert [(one.rule, one.line) for one in found.stale] == [("toy.gone", 1)]


@pytest.mark.parametrize(
    ("when", "applies"),
    [
        ("torch>=2.13,<2.14", True),
        ("torch==2.13.0", True),
        ("torch==2.13.*", True),
        ("torch==2.13.0+cpu", True),
        ("torch==2.13.0+cu130", False),
        ("torch<=2.13.0", True),
        ("torch>2.13.0", False),
        ("torch<2.13", False),
        ("driver>=550,<551", True),
        ("torch", True),
        ("", True),
    ],
)
def test_version_ranges(file, when, applies):
    """A range covers local builds such as 2.13.0+cpu; an entry outside its range is left out, not stale."""
    found = read(file, entry(when=when))

    assert (applies, []) == (bool(found.known), found.stale)


@pytest.mark.parametrize(("version", "applies"), [("2.14.0.dev20260601+cpu", True), ("2.13.0rc1", False)])
def test_versions_before_a_release(file, version, applies):
    """Nightly builds and release candidates are versions like any other."""
    assert applies is bool(read(file, entry(when="torch>=2.13"), {"torch": version}).known)


def test_conditions(file):
    """An entry for a condition concerns runs under it alone, and may stand beside one without."""
    found = read(file, entry() + entry(condition=["float16", "thread"], outcome="crash"))

    assert found.known["toy.broken"].outcome == ["fail"]
    assert [(one.rule, one.condition) for one in found.known_under] == [("toy.broken", ["float16", "thread"])]


def test_version_that_is_none(file):
    """A version that is only a name, such as a GPU's, is in no range."""
    assert read(file, entry(when="gpu>=1"), {"gpu": "NVIDIA H200"}).known == {}


def test_entries_of_several_versions(file):
    """One rule may have an entry for each range of versions."""
    found = read(file, entry(when="torch<2") + entry(when="torch>=2", outcome="crash"))

    assert [one.outcome for one in found.known.values()] == [["crash"]]


def test_unmatched_is_stale(file):
    """An entry that matches no rule is stale, and does not apply."""
    found = read(file, entry(rule="toy.gone"))

    assert (
        found.known,
        [(one.rule, one.why, one.line) for one in found.stale],
    ) == ({}, [("toy.gone", "matches no rule", 1)])


@pytest.mark.parametrize("expires", ["2026-06-14", dt.date(2026, 6, 14)])
def test_expired_is_stale(file, expires):
    """An entry past its date is stale, whether the date is text or TOML's own."""
    text = entry().rstrip() + f"\nexpires = {expires if isinstance(expires, dt.date) else repr(expires)}\n"
    found = read(file, text)

    assert (found.known, [one.why for one in found.stale]) == ({}, ["expired on 2026-06-14"])


def test_last_day(file):
    """An entry still holds on its last day."""
    assert list(read(file, entry(expires="2026-06-15")).known) == ["toy.broken"]


@pytest.mark.parametrize(("text", "said"), MALFORMED.values(), ids=MALFORMED)
def test_check_refuses(verb, file, text, said):
    """`expect check` refuses a malformed file in one sentence and exits 3."""
    file.write_text(text)
    done = verb("expect", "check", "--file", file)

    assert done.returncode == 3
    assert f"hooklaw: {file}:" in complaint(done)
    assert said in complaint(done)


def test_check_names_what_is_stale(verb, file):
    """`expect check` names a stale entry by its line and exits 2."""
    file.write_text(entry(rule="order.six-steps.leaf", saw="x") + entry(rule="toy.gone"))
    done = verb("expect", "check", "--file", file)

    assert (done.returncode, done.stderr) == (2, "")
    assert f"{file}:6: stale: the entry for 'toy.gone' matches no rule\n" in done.stdout
    assert f"{file}: 1 entries apply, 1 are stale\n" in done.stdout


@pytest.mark.parametrize("parts", [{}, {"condition": "thread"}])
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"reason": "unexplained: it failed", "saw": "x"}, "is unexplained: write its reason"),
        ({}, "would accept any failure: write saw, a phrase of what is seen"),
    ],
)
def test_check_names_what_is_unclear(verb, file, parts, more, why):
    """An entry whose reason must still be written, or that does not say what is seen, is stale."""
    file.write_text(entry(rule="order.six-steps.leaf", **parts, **more))
    done = verb("expect", "check", "--file", file)

    assert done.returncode == 2
    assert f"{file}:1: stale: the entry for 'order.six-steps.leaf' {why}\n" in done.stdout
    assert f"{file}: 1 entries apply, 1 are stale\n" in done.stdout


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


def test_no_file_is_known(verb):
    """For a backend without a file, the message asks for --file."""
    done = verb("expect", "check", "--backend", "toy:backend")

    assert done.returncode == 3
    assert complaint(done) == "hooklaw: backend 'toy:backend' names no expectation file: give one with --file"


def test_absent_backend(verb):
    """For a backend that cannot run here, the message says why."""
    done = verb("expect", "check", "--backend", "toy:backend:absent")

    assert done.returncode == 3
    assert "hooklaw: toy:backend:absent: no toy box on this machine; check its file without it" in complaint(done)
