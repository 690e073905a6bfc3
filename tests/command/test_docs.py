"""What the documentation shows is run: every hooklaw command in a shell block, or in a help, exits as it should."""

import re
import shlex
from pathlib import Path

import pytest

from helpers import examples
from hooklaw.cli import VERBS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands():
    """Find every line of a shell block that begins with hooklaw; `test_contributing` runs those on a rule to add."""
    for page in PAGES:
        if page.stem == "add-a-rule":
            continue
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.splitlines():
                if line.startswith("hooklaw "):
                    yield pytest.param(line, id=f"{page.name}: {line}")


@pytest.mark.parametrize("line", list(commands()))
def test_command_runs(hooklaw_command, line, tmp_path):
    """A command that the documentation shows ends with exit code 0."""
    pytest.importorskip("torch", reason="the commands judge torch, which is not installed")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    done = hooklaw_command(*shlex.split(line)[1:], cwd=tmp_path)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", VERBS)
def test_examples_of_a_verb(hooklaw_command, name, tmp_path):
    """The examples in a verb's help, run one after the other, end with exit code 0."""
    pytest.importorskip("torch", reason="the examples judge torch, which is not installed")
    for line in examples(name):
        done = hooklaw_command(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_a_page_is_printed(verb):
    """`hooklaw docs PAGE` prints the page; a name with its folder or its ending is understood too."""
    page = (ROOT / "docs" / "levels.md").read_text()

    assert (0, page) == (verb("docs", "levels").returncode, verb("docs", "docs/levels.md").stdout)


def test_pages_are_listed(verb):
    """Without a page, each page is listed with its title."""
    lines = verb("docs").stdout.splitlines()

    assert {path.stem for path in PAGES[2:]} == {line.split()[0] for line in lines[:-2]}
    assert any(line.split() == ["add-a-rule", "How", "to", "add", "a", "rule"] for line in lines)


def test_unknown_page(verb):
    """A page that does not exist is answered with those of a similar name."""
    done = verb("docs", "condition")

    assert (
        done.returncode, done.stderr
    ) == (3, "hooklaw: no page has the name 'condition': did you mean conditions?\n")  # fmt: skip


def test_messages_name_pages_that_a_wheel_has():
    """A text of the program names a page by the command that prints it, since a wheel's user has no folder docs."""
    named = [
        (path.name, page)
        for room in ("conformance", "backends", "reports")
        for path in (ROOT / room).rglob("*.py")
        for page in re.findall(r"(hooklaw docs [a-z-]+|\bdocs/[a-z-]+\.md)", path.read_text())
    ]
    known = {f"hooklaw docs {path.stem}" for path in PAGES}

    assert [(file, page) for file, page in named if page not in known] == []
    assert named


def test_the_shards_of_the_ci_page(hooklaw_command, tmp_path):
    """The commands that run shards and merge them follow each other, and each exits with 0."""
    (block,) = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)

    assert len(block.splitlines()) == 4
    for line in block.splitlines():
        done = hooklaw_command(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_links_lead_somewhere():
    """Every relative link of a page is a file."""
    broken = [
        f"{page.name}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / link).exists()
    ]

    assert broken == []


def test_ci_runs_the_readme_command():
    """CI takes the test command out of the README, so the README's is the one that is known to work."""
    readme = (ROOT / "README.md").read_text()

    assert re.search(r"^Pass the tests:\n\n```sh\npython3 -m venv .+ tox .+\n```", readme, re.MULTILINE)
