"""Expectation files that lie over another: what they inherit, what they say otherwise, and what an update writes."""

import datetime as dt

import pytest

import made_records as made
from helpers import complaint, entry
from hooklaw.errors import ExpectationFileError
from hooklaw.results import expectations
from hooklaw.results.verdict import Outcome

RULES = {"toy.broken", "toy.order", "toy.last"}
VERSIONS = {"torch": "2.13.0+cpu"}
OVER = 'over = "lower.toml"\n'


@pytest.fixture
def file(tmp_path):
    """Return the path of the upper file."""
    return tmp_path / "upper.toml"


@pytest.fixture
def write(file):
    """Return a function that writes both files."""

    def both(lower, upper, head=OVER):
        file.with_name("lower.toml").write_text(lower)
        file.write_text(head + upper)

    return both


def read(file, versions=VERSIONS):
    """Read the upper file."""
    return expectations.read(file, RULES, versions, today=dt.date(2026, 6, 15))


def known(file, versions=VERSIONS):
    """Return the reason for each rule that is known to break."""
    return {rule: known.reason for rule, known in read(file, versions).known.items()}


def test_inherits(file, write):
    """An entry of the lower file holds here too, and says where it stands."""
    write("# first\n" + entry(), entry(rule="toy.order"))
    found = read(file).known

    assert [(found[rule].file.rpartition("/")[2], found[rule].line) for rule in ("toy.broken", "toy.order")] == [
        ("lower.toml", 2),
        ("upper.toml", 2),
    ]


def test_own_entry_wins(file, write):
    """An entry of the upper file stands in place of the lower file's entry for the rule."""
    write(entry(reason="low") + entry(rule="toy.order", reason="low"), entry(reason="high"))

    assert known(file) == {"toy.broken": "high", "toy.order": "low"}


def test_own_entry_of_other_versions(file, write):
    """An entry of the upper file that does not apply leaves that of the lower file."""
    write(entry(reason="low"), entry(reason="high", when="torch<2"))

    assert known(file) == {"toy.broken": "low"}


def test_rule_that_holds(file, write):
    """The outcome pass cancels an entry of the lower file, in the versions that it names."""
    write(entry() + entry(rule="toy.order"), entry(outcome="pass", when="torch>=2.13"))

    assert {"toy.order"} == {*known(file)}
    assert {"toy.order", "toy.broken"} == {*known(file, {"torch": "2.12.0"})}


def test_versions_of_the_upper_file(file, write):
    """The lower file counts in the versions that the upper file's defaults name."""
    write(entry(), "[defaults]\nwhen = 'torch>=2.13'\n")

    assert ({"toy.broken"}, {}) == ({*known(file)}, known(file, {"torch": "2.12.0"}))


def test_three_files(file, write):
    """A lower file may lie over another, by a path relative to its own folder."""
    (file.parent / "sub").mkdir()
    (file.parent / "sub" / "lowest.toml").write_text(entry(rule="toy.last") + entry(rule="toy.order"))
    write('over = "sub/lowest.toml"\n' + entry(), entry(rule="toy.last", outcome="pass"))

    assert {"toy.order", "toy.broken"} == {*known(file)}


@pytest.fixture
def several(file, write):
    """Return a function that writes a first and a second file below the upper one, and a file below both."""

    def all_of(first, second, lowest, upper=""):
        write("", upper, 'over = ["first.toml", "second.toml"]\n')
        file.with_name("first.toml").write_text('over = "lowest.toml"\n' + first)
        file.with_name("second.toml").write_text('over = "lowest.toml"\n' + second)
        file.with_name("lowest.toml").write_text(lowest)

    return all_of


ORDER, LAST = {"rule": "toy.order"}, {"rule": "toy.last"}


def test_several_files(file, several):
    """Of several lower files the first has the last word, after the upper file's own."""
    first = entry(reason="first") + entry(reason="first", **ORDER)
    second = entry(reason="second") + entry(reason="second", **ORDER) + entry(reason="second", **LAST)
    several(first, second, "", entry(reason="own"))

    assert known(file) == {"toy.broken": "own", "toy.order": "first", "toy.last": "second"}


def test_file_below_several(file, several):
    """A file that several lie over is below them all: what the second cancels of it, the first does not bring back."""
    several("", entry(outcome="pass"), entry() + entry(reason="low", **ORDER))

    assert known(file) == {"toy.order": "low"}


def test_file_below_several_in_some_versions(file, several):
    """A file that several lie over counts where one of them inherits it."""
    several("[defaults]\nwhen = 'torch<2'\n", "", entry())

    assert {*known(file)} == {"toy.broken"}


def test_all_versions(file, write):
    """Without a version all entries count, those of the lower file too."""
    write(entry(when="torch<2"), entry(rule="toy.order", when="torch<2"))

    assert {"toy.broken", "toy.order"} == {*known(file, None)}


def test_shipped(file, write):
    """A file that hooklaw ships is named by its stem."""
    write("", "", 'over = "torch-eager"\n')
    rule = "order.retain-grad-before-node-prehook"
    found = expectations.read(file, {rule}, VERSIONS).known

    assert found[rule].file.endswith("expectations/torch-eager.toml")


@pytest.mark.parametrize(
    ("lower", "upper", "stale"),
    [
        (entry(rule="toy.gone"), "", ("lower.toml", 1, "matches no rule")),
        (entry(expires="2026-06-14"), "", ("lower.toml", 1, "expired on 2026-06-14")),
        ("", entry(outcome="pass"), ("upper.toml", 2, "cancels nothing: no lower file has an entry for the rule")),
    ],
)
def test_stale(file, write, lower, upper, stale):
    """A stale entry is named where it stands, also one that cancels nothing."""
    write(lower, upper)
    found = read(file)

    assert [stale] == [(one.file.rpartition("/")[2], one.line, one.why) for one in found.stale]
    assert not found.known


@pytest.mark.parametrize(
    ("lower", "head", "said"),
    [
        ("", "over = 'torch-egger'\n", r"upper.toml: over = 'torch-egger' names no file: write .*torch-eager"),
        ("", "over = ['lower.toml', 'x']\n", r"upper.toml: over = 'x' names no file"),
        ("", "over = 3\n", r"upper.toml: over = 3 names no file"),
        ("", "over = 'no.toml'\n", r"cannot read the expectation file .*/no.toml: No such file or directory"),
        ("", "over = 'upper.toml'\n", r"upper.toml: over = 'upper.toml' goes in a circle: the file would lie over it"),
        ("over = 'upper.toml'\n", OVER, r"lower.toml: over = 'upper.toml' goes in a circle"),
        (entry(outcome="pass"), OVER, r"lower.toml:1: outcome 'pass' cannot be expected"),
        ("", OVER + entry(outcome=["pass", "lost"]), r"upper.toml:2: outcome 'lost' cannot be expected"),
    ],
)
def test_refused(file, write, lower, head, said):
    """A name that is not known, and a file that lies over itself, are refused in one sentence."""
    write(lower, "", head)

    with pytest.raises(ExpectationFileError, match=said):
        read(file)


def test_check_of_both(verb, file, write):
    """`expect check` names the line and the file of each entry that must be explained, also of one that cancels."""
    ids = "order.six-steps.leaf", "order.six-steps.non-leaf"
    lower = "".join(entry(rule=rule, reason="unexplained: low", saw="x") for rule in ids)
    write(lower, entry(rule=ids[0], outcome="pass", reason="unexplained: high"))
    done = verb("expect", "check", "--file", file)

    assert (done.returncode, done.stderr) == (2, "")
    assert f"{file}:2: stale: the entry for {ids[0]!r} is unexplained" in done.stdout
    assert f"{file.with_name('lower.toml')}:6: stale: the entry for {ids[1]!r} is unexplained" in done.stdout
    assert f"{file}: 1 entries apply, 2 are stale\n" in done.stdout


def test_check_refuses_a_circle(verb, file, write):
    """`expect check` refuses a circle in one sentence and exits 3."""
    write("", "", "over = 'upper.toml'\n")
    done = verb("expect", "check", "--file", file)

    assert (done.returncode, "goes in a circle" in complaint(done)) == (3, True)


RULE = made.three()[0].header.rules[0]


@pytest.fixture
def update(verb, tmp_path, file):
    """Return `expect update` as a function of a rule's result on torch 2.13; it returns the output and the entries."""

    def run(result):
        lower = file.with_name("lower.toml").read_text()
        made_run = made.run("toy", [RULE], [result], versions={"torch": "2.13.0+cpu"})
        done = verb("expect", "update", made.write(tmp_path / "results.jsonl", made_run), "--file", file)
        own = [(one.outcome, one.when) for one in expectations.load(file).entries]

        assert lower == file.with_name("lower.toml").read_text()
        return done.stdout.removeprefix(f"{file}: "), own

    return run


KNOWN = entry(rule="order.first")
HOLDS = entry(rule="order.first", outcome="pass")
PASS, FAIL, CRASH = made.passed("order.first"), made.failed("order.first"), made.failed("order.first", Outcome.CRASH)
ADDED = "order.first: entry added, write its reason\n"
NOTHING = "nothing to change\n"
NOW = "torch==2.13.0"
ELSEWHERE = "torch>=2.4,!=2.13.*"
RANGE = {"rule": "order.first", "when": "torch>=2.4"}


@pytest.mark.parametrize(
    ("lower", "upper", "result", "said", "own"),
    [
        (KNOWN, "", FAIL, NOTHING, []),
        (KNOWN, "", PASS, ADDED, [(["pass"], NOW)]),
        (KNOWN, "", CRASH, ADDED, [(["crash"], NOW)]),
        (KNOWN, HOLDS, PASS, NOTHING, [(["pass"], "")]),
        (KNOWN, HOLDS, FAIL, "order.first fails now: entry removed\n", []),
        (
            KNOWN,
            entry(outcome="pass", **RANGE),
            FAIL,
            f"order.first fails now: entry kept for {ELSEWHERE}\n",
            [(["pass"], ELSEWHERE)],
        ),
        (
            KNOWN,
            entry(outcome="crash", **RANGE),
            PASS,
            f"order.first holds now: entry kept for {ELSEWHERE}\n",
            [(["crash"], ELSEWHERE), (["pass"], NOW)],
        ),
        (KNOWN, entry(rule="order.first", outcome="crash"), CRASH, NOTHING, [(["crash"], "")]),
        ("", "", FAIL, ADDED, [(["fail"], NOW)]),
        ("", "", PASS, NOTHING, []),
    ],
)
def test_update(update, write, lower, upper, result, said, own):  # noqa: PLR0913, PLR0917 - a table
    """An update writes into the upper file only what differs from the lower file, and never changes that."""
    write(lower, upper)
    told, entries = update(result)

    assert (own, True) == (entries, told.startswith(said))


def test_update_over_several(update, several):
    """An update writes only what differs from all lower files together."""
    several("", "", KNOWN)

    assert [update(FAIL), update(PASS)[1]] == [(NOTHING, []), [(["pass"], NOW)]]


def test_update_twice(update, write):
    """A second update with the same results changes nothing."""
    write(KNOWN, "")
    update(PASS)

    assert update(PASS) == (NOTHING, [(["pass"], NOW)])


def update_new(verb, tmp_path, result, **header):
    """Update a new file from a result on torch 2.13; return what was said and the file's text."""
    run = made.run("toy", [RULE], [result], versions={"torch": "2.13.0+cpu"}, **header)
    done = verb("expect", "update", made.write(tmp_path / "results.jsonl", run), "--file", "new.toml")
    file = tmp_path / "new.toml"
    return done.stdout, file.read_text() if file.exists() else None


def test_new_file_lies_over_the_shipped_one(verb, tmp_path):
    """A new file lies over the shipped file that judged the run, and says for which device it is."""
    said, text = update_new(verb, tmp_path, FAIL, expectations="torch-eager", device="npy")

    assert text.startswith('over = "torch-eager"\n\n[[expect]]\nrule = "order.first" # seen ')
    assert 'when = "torch==2.13.0 and device==npy"\n' in text
    assert said.endswith("new.toml: written, 1 change\n")


@pytest.mark.parametrize("judged_by", ["", "mine.toml", "torch-egger"])
def test_new_file_that_lies_over_none(verb, tmp_path, judged_by):
    """A run that was judged by no shipped file makes a file that stands alone."""
    assert update_new(verb, tmp_path, FAIL, expectations=judged_by)[1].startswith("[[expect]]\n")


def test_new_file_with_nothing_to_say(verb, tmp_path):
    """A run that is as the shipped file expects makes no file."""
    assert update_new(verb, tmp_path, PASS, expectations="torch-eager") == ("new.toml: nothing to change\n", None)


def test_update_leaves_an_installed_file(verb, tmp_path):
    """A file that an installed package lists as its own is not changed; one beside it is."""
    (tmp_path / "law-1.0.dist-info").mkdir()
    (tmp_path / "law-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: law\nVersion: 1.0\n")
    (tmp_path / "law-1.0.dist-info" / "RECORD").write_text("law/known.toml,sha256=x,1\n")
    (tmp_path / "law").mkdir()
    run = made.run("toy", [RULE], [FAIL], versions={"torch": "2.13.0"})
    results = made.write(tmp_path / "results.jsonl", run)
    owned = tmp_path / "law" / "known.toml"
    owned.write_text("")
    done = verb("expect", "update", results, "--file", owned)

    assert (done.returncode, owned.read_text()) == (3, "")
    assert "law/known.toml belongs to the installed package law 1.0, which an update would not survive" in complaint(
        done
    )
    assert verb("expect", "update", results, "--file", tmp_path / "law" / "mine.toml").returncode == 0


def test_run_names_the_lower_file(judge, file, write):
    """A rule that passes though the lower file expects it to fail is fixed; the run says where the entry stands."""
    write(entry(rule="toy.order"), "")
    done = judge("--in-process", "--expectations", file)

    assert done.returncode == 1
    assert "lower.toml:1 expects it to fail" in done.stdout


UNDER = 'over = "lower.toml"\nunder = "thread"\n'


def test_always_under_a_condition(file, write):
    """With `under` an entry for the condition holds in any run, in place of the rule's entry without one."""
    lower = entry(reason="plain") + entry(reason="there", condition="thread") + entry(rule="toy.order", reason="low")
    write(lower + entry(rule="toy.last", condition="packed"), "", UNDER)

    assert known(file) == {"toy.broken": "there", "toy.order": "low"}
    assert {one.rule for one in read(file).known_under} == {"toy.broken", "toy.last"}


def test_always_under_no_condition(file, write):
    """A word that is no condition is refused."""
    write(entry(), "", 'over = "lower.toml"\nunder = "thred"\n')

    with pytest.raises(
        ExpectationFileError, match=r"upper.toml: no condition has the name 'thred': did you mean thread"
    ):
        read(file)
