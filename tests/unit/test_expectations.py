"""Expectation files: what an entry says is read, and a malformed or stale one is named with file and line."""

import datetime as dt

import pytest

import made_records as made
from helpers import complaint, entry
from hooklaw.errors import ExpectationFileError
from hooklaw.results import expectations

TODAY = dt.date(2026, 6, 15)
VERSIONS = {"torch": "2.13.0+cpu", "driver": "550.1"}
SHARED = "[defaults]\nwhen = 'torch>=2'\n"
ONLY = "1: an expectation file has only over, under, [defaults] and [[expect]] tables"
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
    "a rule that holds": (entry(outcome="pass"), "1: outcome 'pass' cannot be expected: write fail, crash, timeout"),
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


@pytest.mark.parametrize("words", [("check",), ("update", "results.jsonl")])
def test_nested_deeply(verb, file, tmp_path, words):
    """A file nested ten thousand deep is named in a sentence."""
    made.write(tmp_path / "results.jsonl", made.three()[0])
    file.write_text(f"{entry()}x = {'[' * 10_000}{']' * 10_000}\n")
    done = verb("expect", *words, "--file", file)

    assert done.returncode == 3
    assert complaint(done) == f"hooklaw: {file}: the expectation file is nested too deeply"


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
