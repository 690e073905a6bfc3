"""The tool that compares versions of torch, and the page that holds what it printed."""

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "torch_versions.py"
PAGE = (ROOT / "docs" / "torch-versions.md").read_text()
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="tools/ stands in the repository only, not in an sdist")
FINDINGS = """# What was found

### One prints

```python
print(1)  # prints 1; documented 2
```

```python
print(2)  # prints 1; documented 2
```

### Another dies

```python
import os

os.abort()  # dies of an abort
```
"""


@pytest.fixture(scope="module")
def tool():
    """Return the tool's functions."""
    return SimpleNamespace(**runpy.run_path(str(SCRIPT))) if SCRIPT.exists() else None


def test_programs_tell_whether_they_do_the_same(tool):
    """A program does the same if it prints what its comments say, or dies where they say so."""
    found = {one.name: one.does_the_same(sys.executable) for one in tool.programs(FINDINGS)}

    assert found == {"One prints": True, "One prints (2)": False, "Another dies": True}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("print(1)  # prints 1; documented 2\nimport os\nos.abort()", False),
        ("print(1)  # prints 1; documented 2\nraise SystemExit(1)", True),
        ("pass  # dies of an abort", False),
        ("pass", True),
    ],
)
def test_a_program_that_ends_otherwise(tool, text, same):
    """What a program prints is not enough if it dies, nor a comment on its death if it lives."""
    assert tool.Program("one", text).does_the_same(sys.executable) is same


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["fail", "fail", "pass"], "fail on 2.4.1 to 2.8.0, pass on 2.15.0"),
        (["pass", "fail", "pass"], "pass on 2.4.1, fail on 2.8.0, pass on 2.15.0"),
        (["pass", "pass", "pass"], "pass on 2.4.1 to 2.15.0"),
    ],
)
def test_spans(tool, values, said):
    """Versions side by side with the same outcome are said in one."""
    assert tool.spans(values, ["2.4.1", "2.8.0", "2.15.0"]) == said


def test_no_python(tool):
    """Without an interpreter it says what it wants."""
    with pytest.raises(SystemExit, match="name at least one Python that has torch"):
        tool.main([])


def test_a_python_without_torch(tool, tmp_path):
    """An interpreter without torch is named, with what it said last."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'a traceback' >&2\necho 'no package torch' >&2\nexit 1\n")
    python.chmod(0o755)

    with pytest.raises(SystemExit, match=f"{python} has no torch: no package torch"):
        tool.main([str(python)])


def test_no_such_python(tool, tmp_path):
    """An interpreter that is none is named."""
    with pytest.raises(SystemExit, match=f"{tmp_path}/none cannot be started: No such file or directory"):
        tool.main([f"{tmp_path}/none"])


def test_the_table(tool, tmp_path, capsys):
    """The programs run on each interpreter; what is the same everywhere is left out."""
    torch = pytest.importorskip("torch", reason="the programs are judged on torch, which is not installed")
    page = tmp_path / "findings.md"
    page.write_text(FINDINGS)
    tool.main.__globals__["FINDINGS"] = page
    tool.main([sys.executable, sys.executable])
    version = torch.__version__.partition("+")[0]

    assert capsys.readouterr().out.splitlines()[2:] == [f"| One prints (2) | no on {version} to {version} |"]


def test_the_page_is_whole():
    """Every version that the expectation file was measured with has its row."""
    known = (ROOT / "backends" / "hooklaw_backends" / "expectations" / "torch-eager.toml").read_text()
    [measured] = re.findall(r"were measured with (.+)\.$", known, re.MULTILINE)

    assert re.findall(r"^\| (2[\d.]+) \|", PAGE, re.MULTILINE) == re.split(", | and ", measured)


@pytest.mark.parametrize(("early_stop", "ends"), [(True, 1), (False, 2)])
@pytest.mark.parametrize("option", [True, False])
def test_early_stop_before_it_was_an_option(monkeypatch, option, early_stop, ends):
    """Where a checkpoint does not take early_stop itself, the context of the same meaning tells it."""
    torch = pytest.importorskip("torch", reason="the adapter is torch's")
    from hooklaw_backends import torch_eager

    if not option:
        plain = torch_eager.checkpoints.checkpoint
        monkeypatch.setattr(torch_eager, "EARLY_STOP_OPTION", False)
        old = lambda fn, *args, use_reentrant: plain(fn, *args, use_reentrant=use_reentrant)  # noqa: E731 - as short as it is
        monkeypatch.setattr(torch_eager.checkpoints, "checkpoint", old)
    seen = []

    def region(x):
        y = x.exp()
        seen.append("end")
        return y

    x = torch.ones(2, requires_grad=True)
    torch_eager.backend().checkpoint(region, x, use_reentrant=False, early_stop=early_stop).sum().backward()

    assert len(seen) == ends
