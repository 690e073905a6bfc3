"""The folklore: claims are read or refused in one sentence, found by words and by rules, and shown on a page."""

from pathlib import Path

import pytest

from hooklaw.cli.folklore import wanted
from hooklaw.errors import FolkloreError, UnknownClaimError
from hooklaw.folklore import Ruling, about, load_claims, load_themes
from hooklaw.folklore.evidence import Finding
from hooklaw.folklore.page import markdown
from hooklaw.folklore.reading import check_rules
from hooklaw.law.collection import load_rules

PAGE = Path(__file__).parents[2] / "docs" / "folklore.md"
CLAIM = {
    "id": "a.claim",
    "source": "https://example.org/page",
    "claim": "A hook is a hook.",
    "verdict": "false",
    "answer": "It is not.",
    "program": "print(1)",
    "prints": "1\n",
}


@pytest.fixture
def written(tmp_path):
    """Return what reads a file of claims, each given by what it has besides or, with None, not."""

    def read(*claims, head='title = "A theme"'):
        lines = [head]
        for parts in claims:
            values = {key: value for key, value in (CLAIM | parts).items() if value is not None}
            lines += ["[[claim]]", *(f"{key} = {value!r}" for key, value in values.items())]
        (tmp_path / "theme.toml").write_text("\n".join(lines).replace("'1\\n'", '"1\\n"'))
        return load_themes(tmp_path)

    return read


def test_claims_are_read(written):
    """A theme has its title and its claims, and each claim knows where it stands."""
    (theme,) = written({}, {"id": "other"}, head='title = "A theme"\npractice = true')

    assert (theme.title, theme.practice, [each.id for each in theme.claims]) == ("A theme", True, ["a.claim", "other"])
    assert theme.claims[0].place == "theme.toml:3"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"source": None}, "missing required field `source`"),
        ({"source": ""}, "has no source: give the document's file name, or the address of a page"),
        ({"source": "a blog"}, "has no source"),
        ({"verdict": "wrong"}, "has the verdict 'wrong', which does not exist: choose from true, false"),
        ({"verdict": "outdatet"}, "which does not exist: did you mean outdated"),
        ({"verdict": None}, "missing required field `verdict`"),
        ({"rules": "order"}, "Expected `array`"),
        ({"ruls": ["order"]}, "unknown field `ruls`"),
        ({"claim": ""}, "has no id or no text"),
        ({"answer": None}, "is false, so it needs an answer"),
        ({"verdict": "true only if", "answer": None}, "is true only if, so it needs an answer"),
        ({"verdict": "true", "program": None, "prints": None}, "has no evidence"),
        ({"prints": None}, "needs both a program and what it prints"),
        ({"rules": ["x"], "program": None, "prints": None}, "is false, so it needs a program"),
    ],
)
def test_a_malformed_claim(written, parts, said):
    """A claim that cannot be looked up or believed is refused in one sentence that names the file and the line."""
    with pytest.raises(FolkloreError) as refused:
        written(parts)

    assert said in str(refused.value)
    assert "theme.toml:2: claim 'a.claim' " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_claim_twice(written):
    """An id belongs to one claim."""
    with pytest.raises(FolkloreError, match=r"theme.toml:10: claim 'a.claim' is there twice, also at theme.toml:2"):
        written({}, {})


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("", "begin the file with a line title"),
        ("title = 1", "begin the file with a line title"),
        ('title = "A"\npractice = "no"', "practice is true or false"),
        ("title = ", "not valid TOML"),
        ('title = "A"\nname = "B"', "found name"),
    ],
)
def test_a_malformed_file(written, head, said):
    """A file without a title, or with something else, is refused in one sentence."""
    with pytest.raises(FolkloreError, match=said):
        written({}, head=head)


def test_no_file(tmp_path):
    """A folder without a file of claims is refused."""
    with pytest.raises(FolkloreError, match="no folklore is in"):
        load_themes(tmp_path)


def test_a_rule_that_does_not_exist(written):
    """A claim that names a rule that does not exist is refused, and the nearest rule is named."""
    (theme,) = written({"rules": ["order.six-step.leaf"]})
    with pytest.raises(FolkloreError, match="names the rule 'order.six-step.leaf', which does not exist: did you mean"):
        check_rules(theme.claims, load_rules())


def test_the_claims():
    """All claims are well formed, name rules that exist, and the documents of the beginning have 95 among them."""
    claims = load_claims()
    check_rules(claims, load_rules())

    assert sum(claim.seed for claim in claims) == 95
    assert {*Ruling} == {claim.verdict for claim in claims}


def test_claims_beyond_the_documents():
    """At least 60 claims have an address, and at least half of them are about what goes wrong in practice."""
    themes = load_themes()
    said = [claim for theme in themes for claim in theme.claims if not claim.seed]
    practice = [claim for theme in themes if theme.practice for claim in theme.claims if not claim.seed]

    assert len(said) >= 60
    assert 2 * len(practice) >= len(said)
    assert [claim.id for claim in said if not claim.where] == []


def test_about():
    """A rule's claims are found, those that it refutes first."""
    found = about("module.full-backward.args")

    assert found[0].verdict.refutes
    assert "seed0.module.grad-input-meaning" in [claim.id for claim in found]
    assert about("no.rule") == []


def test_found_by_words():
    """An id finds one claim; words find claims by id, theme, verdict, source, rule and text."""
    claims = load_claims()

    assert [claim.id for claim in wanted(claims, ["seed0.order.chain"], "")] == ["seed0.order.chain"]
    assert "seed1.graph.error-text" in [claim.id for claim in wanted(claims, ["outdated", "freed"], "")]
    assert {"clipping"} == {claim.theme for claim in wanted(claims, [], "clipping and seed0")}
    with pytest.raises(UnknownClaimError, match="no claim matches 'ordr': did you mean"):
        wanted(claims, ["ordr"], "")
    with pytest.raises(UnknownClaimError, match="matches no claim"):
        wanted(claims, [], "seed1 and clipping")


def test_the_page():
    """docs/folklore.md shows the claims; `hooklaw folklore --format markdown > docs/folklore.md` renews it."""
    assert markdown(load_themes()) == PAGE.read_text()


def test_what_was_not_borne_out(monkeypatch, verb):
    """A verdict that its evidence contradicts is named, and the exit code is 1; another version of torch is said."""
    claim = next(each for each in load_claims() if each.id == "seed0.order.chain")
    monkeypatch.setattr("hooklaw.cli.folklore.find", lambda *_: iter([Finding(claim, {}, ["the program fails: no"])]))
    monkeypatch.setattr("hooklaw.folklore.evidence.version", lambda _: "2.4.1+cpu")
    done = verb("folklore", "--run", "seed0.order.chain")

    assert done.returncode == 1
    assert "the evidence does not bear out:\n  seed0.order.chain: the program fails: no\n" in done.stdout
    assert "1 verdict not borne out\nthe verdicts are about torch 2.13.0, the evidence ran on 2.4.1\n" in done.stdout


def test_without_torch(monkeypatch, verb):
    """Without torch the evidence cannot run, which is one sentence."""
    monkeypatch.setattr("hooklaw.folklore.evidence.find_spec", lambda _: None)
    done = verb("folklore", "--run", "seed0.order.chain")

    assert done.returncode == 3
    assert "the evidence runs on torch 2.13.0, which is not installed: pip install torch==2.13.0" in done.stderr
