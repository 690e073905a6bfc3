"""The drawing of the imports: arrows one way, and docs/design.md shows it."""

import runpy
from graphlib import CycleError
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("grimp", reason="the imports are read by grimp, which is not installed")
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "import_graph.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="tools/ stands in the repository only, not in an sdist")


@pytest.fixture
def tool():
    """Return the tool's functions."""
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def test_the_page_shows_the_imports(tool):
    """docs/design.md shows what the tool draws; `python tools/import_graph.py --write` brings it up to date."""
    [shown] = tool.BLOCK.findall(tool.PAGE.read_text())

    assert tool.drawing(tool.rooms(*tool.FOLDERS)) == shown


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("hooklaw", "hooklaw"),
        ("hooklaw.law.rule", "law"),
        ("hooklaw.fuzz.draw._themes", "fuzz/draw"),
        ("hooklaw_backends.mutants.base", "hooklaw_backends"),
    ],
)
def test_room(tool, module, expected):
    """A room is a package of hooklaw, a stage of the fuzzer, or another folder."""
    assert tool.room(module) == expected


def test_implied_arrows_are_left_out(tool):
    """An arrow that leads where other arrows lead as well is not drawn."""
    drawn = tool.drawing({"cli": {"law", "errors"}, "law": {"errors"}, "errors": set()})

    assert drawn == "graph TD\n  cli --> law\n  law --> errors\n"


def test_a_circle(tool, capsys):
    """Rooms that import each other are named, and the exit code is 1."""
    circle = {"law": {"cli"}, "cli": {"law"}}
    with pytest.raises(CycleError):
        tool.drawing(circle)
    tool.main.__globals__["rooms"] = lambda *_: circle

    assert tool.main() == 1
    assert capsys.readouterr().out.startswith("an arrow runs back up: ")
