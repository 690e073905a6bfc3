"""The matrix: what it judges, what it publishes, and the pages that are made of the records."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hooklaw.law.rule import Level
from hooklaw.results import records
from hooklaw.results.summary import count

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "tools").exists(), reason="tools/ stands in the repository only")


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Return both tools; they publish and write pages in a folder of the test."""
    import compatibility
    import matrix

    docs = tmp_path / "docs"
    docs.mkdir()
    marks = "<!-- {0}: made by tools/compatibility.py -->\n<!-- end of {0} -->\n"
    (docs / "torch-versions.md").write_text("before\n" + marks.format("counts") + marks.format("changes") + "after\n")
    (tmp_path / "README.md").write_text(marks.format("found"))
    published = tmp_path / "published"
    published.mkdir()
    for module in (matrix, compatibility):
        monkeypatch.setattr(module, "FOLDER", published)
    monkeypatch.setattr(compatibility, "ROOT", tmp_path)
    monkeypatch.setattr(compatibility, "PAGE", docs / "compatibility.md")
    return SimpleNamespace(matrix=matrix, pages=compatibility, folder=published, root=tmp_path)


def test_what_is_published():
    """Twenty columns and more have a record, and none of them has a regression."""
    import compatibility

    found = compatibility.published()

    assert len(found) >= 20
    assert [record.stem for record in found if count(record.run).regressions] == []


def test_the_pages_say_what_the_records_say(capsys):
    """Each generated table is what the published records come to."""
    import compatibility

    assert (compatibility.main(["--check"]), capsys.readouterr().out) == (0, "")


def test_the_page_of_modes_counts_what_they_break():
    """Each mode's row says how many MUST and SHOULD rules hold in eager torch and not in the mode."""
    import compatibility

    runs = {record.stem: record.run for record in compatibility.published()}
    rows = re.findall(
        r"^\| `([\w-]+)` \|[^|]*\| (\d+ rules|nothing) \|", (ROOT / "docs" / "modes.md").read_text(), re.MULTILINE
    )

    def broken(run):
        return {name for name, result in run.results.items() if result.outcome in ("fail", "crash", "timeout")}

    may = {rule.id for rule in runs["torch-eager"].header.rules if rule.level is Level.MAY}
    more = {mode: len(broken(runs[f"torch-mode-{mode}"]) - broken(runs["torch-eager"]) - may) for mode, _ in rows}

    assert len(rows) == 7
    assert {mode: f"{number} rules" if number else "nothing" for mode, number in more.items()} == dict(rows)


def test_a_record_takes_the_place_of_the_one_before(tools, capsys):
    """A backend is judged, its record bears the day and replaces an older one, and the pages name it."""
    (tools.folder / "2026-01-01-reference.jsonl").write_text("an old one")
    (tools.folder / "2026-01-01-reference-2.jsonl").write_text("another backend's")
    code = tools.matrix.publish(tools.matrix.Column(sys.executable, "reference", ""))
    (kept,) = tools.folder.glob("*-reference.jsonl")
    (run,) = records.read(kept)

    assert (code, run.header.backend) == (0, "reference")
    assert (tools.folder / "2026-01-01-reference-2.jsonl").exists()
    assert "reference: " in capsys.readouterr().out

    (tools.folder / "2026-01-01-reference-2.jsonl").unlink()
    tools.pages.renew()
    passed, judged = run.count()
    page = (tools.root / "docs" / "compatibility.md").read_text()
    assert f"| `reference` | hooklaw-reference 0.1.0 | {kept.stem[:10]} | {passed} of {judged} | 0 |" in page
    assert (tools.root / "docs" / "torch-versions.md").read_text().endswith("after\n")


def test_what_cannot_be_judged_is_not_published(tools, monkeypatch, capsys):
    """A backend that cannot be judged keeps its old record, and the reason is printed."""
    monkeypatch.setitem(tools.matrix.BACKENDS, "no-such-backend", "")
    (tools.folder / "2026-01-01-no-such-backend.jsonl").write_text("kept")
    code = tools.matrix.publish(tools.matrix.Column(sys.executable, "no-such-backend", ""))

    assert code == 3
    assert (tools.folder / "2026-01-01-no-such-backend.jsonl").read_text() == "kept"
    assert "no-such-backend: not judged, hooklaw: no backend has the name" in capsys.readouterr().out


def test_columns(tools, monkeypatch):
    """torch-eager is judged in each version, its modes in the documented one, and each column once."""
    found = {"new": {"torch": "2.15.0"}, "usual": {"torch": "2.13.0", "autograd": "1.9"}, "twin": {"torch": "2.15.0"}}
    monkeypatch.setattr(tools.matrix, "packages", lambda python: found[Path(python).name])
    stems = [column.stem for column in tools.matrix.columns(["new", "usual", "twin"], [])]

    assert stems[:3] == ["torch-eager-2.15.0", "reference", "torch-eager"]
    assert stems.count("torch-eager-2.15.0") == 1
    assert "torch-compile-aot_eager" in stems
    assert stems[-1] == "hips-autograd"
    assert "tinygrad" not in stems


def test_columns_of_several_versions(tools, monkeypatch):
    """Each version of Paddle has a column; the one that is meant by the name alone has the name alone."""
    monkeypatch.setattr(tools.matrix, "packages", lambda python: {"paddlepaddle": Path(python).name})

    stems = [column.stem for column in tools.matrix.columns(["3.1.1", "3.3.1", "3.2.2"], ["paddle"])]

    assert stems == ["paddle-3.1.1", "paddle", "paddle-3.2.2"]


def test_signs_of_versions(tools):
    """Where versions differ, the sign says from which version on."""
    column = [SimpleNamespace(stem=name, version=name) for name in ("2.4.1", "2.8.0", "2.15.0")]
    signs = {"2.4.1": {"a": "known crash"}, "2.8.0": {"a": "known crash"}, "2.15.0": {"a": "pass"}}

    assert tools.pages.sign("a", column, signs) == "~ ✓ from 2.15.0"
    assert tools.pages.sign("a", column[:1], signs) == "~"


def test_a_page_without_marks(tools):
    """A page whose marks are gone is named by its marks, and nothing is written."""
    with pytest.raises(SystemExit, match="the marks '<!-- counts: made by tools/compatibility.py -->'"):
        tools.pages.between("no marks", "counts", "")


def test_a_backend_that_the_matrix_does_not_have(tools, capsys):
    """A wrong word after --only is refused with what there is."""
    with pytest.raises(SystemExit):
        tools.matrix.main(["--only", "tinygrab"])

    assert "no backend of the matrix is named 'tinygrab': there are torch-eager" in capsys.readouterr().err
