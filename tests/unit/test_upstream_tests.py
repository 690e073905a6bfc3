"""The table of PyTorch's own tests: no row is empty, every rule exists, and docs/upstream-tests.md shows it."""

import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from hooklaw.law.collection import load_rules

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "upstream_tests.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="tools/ stands in the repository only, not in an sdist")
TOY = """
[reasons]
private = "tests a private function"

[gaps]
freed = "a hook is freed"

[[file]]
path = "test/test_toy.py"
repository = "toy/toy"
commit = "0123456789abcdef"

[file.tests.TestToy]
"""


@pytest.fixture
def tool():
    """Return the tool's functions."""
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def wrong(tool, row):
    """Return what the tool says of a row."""
    return list(tool.problems(tool.files(TOY + row), {"toy.rule"}))


def test_the_table_is_right(tool):
    """Every row has a rule that exists, or says why there is none."""
    assert list(tool.problems(tool.files(tool.TABLE.read_text()), load_rules())) == []


def test_the_page_shows_the_table(tool):
    """docs/upstream-tests.md shows the table; `python tools/upstream_tests.py --write` brings it up to date."""
    assert tool.page(tool.files(tool.TABLE.read_text())) == tool.PAGE.read_text()


@pytest.mark.parametrize("kind", ["reasons", "gaps"])
def test_every_name_is_used(tool, kind):
    """Each named reason and each named gap stands in a row."""
    table = tool.TABLE.read_text()
    said = {part for file in tool.files(table) for row in file.rows for part in (row.gap, row.reason)}

    assert set(tomllib.loads(table)[kind].values()) <= said


def test_no_test_stands_twice(tool):
    """A file has one row for each of its tests."""
    found = tool.files(tool.TABLE.read_text())
    names = [(file.path, row.name) for file in found for row in file.rows]

    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('test_it = ["toy.rule"]', "`toy.rule`"),
        ('test_it = "private"', "tests a private function"),
        ('test_it = { gap = "freed" }', "no rule yet: a hook is freed"),
        ('test_it = ["toy.rule", { gap = "the other half" }]', "`toy.rule`; no rule yet: the other half"),
    ],
)
def test_a_row(tool, row, expected):
    """A row shows its rules, what no rule states yet, and its reason."""
    assert wrong(tool, row) == []
    assert f"| `TestToy.test_it` | {expected} |\n" in tool.page(tool.files(TOY + row))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("test_it = []", "TestToy.test_it: neither a rule nor a reason"),
        ('test_it = ""', "TestToy.test_it: neither a rule nor a reason"),
        ('test_it = ["toy.gone"]', "TestToy.test_it: there is no rule toy.gone"),
        ('test_it = "privat"', "TestToy.test_it: no sentence: privat"),
    ],
)
def test_a_wrong_row(tool, row, expected):
    """An empty row, a rule that does not exist, and a reason that is not named are each told."""
    assert [expected] == wrong(tool, row)


def test_the_command_tells_a_wrong_row(tool, tmp_path, capsys):
    """The command writes no page and exits with 1 if a row is wrong."""
    table = tmp_path / "table.toml"
    table.write_text(TOY + "test_it = []")
    tool.main.__globals__.update(TABLE=table, PAGE=tmp_path / "page.md")

    assert tool.main("--write") == 1
    assert capsys.readouterr().out == "TestToy.test_it: neither a rule nor a reason\n"
    assert not (tmp_path / "page.md").exists()
