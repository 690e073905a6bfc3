"""What a contributor does first, in a fresh clone, word for word."""

import re
import shutil
from pathlib import Path

import pytest

from installed import shell_in

ROOT = Path(__file__).parents[2]
CLONED = ("conformance", "backends", "reports", "docs", "tests", "pyproject.toml", "README.md", "LICENSE")
APPENDED = re.compile(r"Append it to `([\w./-]+)`[^\n]*\n\n```python\n(.*?)```", re.DOTALL)


def blocks(page):
    """Return the lines of each shell block of a page."""
    return [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Return a clone, and a shell in which it is set up as CONTRIBUTING.md says, but for what needs a network."""
    folder = tmp_path_factory.mktemp("clone")
    for name in CLONED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (make, activate, upgrade, install), *_ = blocks("CONTRIBUTING.md")
    shell = shell_in(folder / ".venv")
    pytest_command = folder / ".venv" / "bin" / "pytest"  # the group installs it; what is borrowed brings no commands
    pytest_command.write_text(
        f"#!{pytest_command.with_name('python')}\nimport pytest\nraise SystemExit(pytest.console_main())\n"
    )
    pytest_command.chmod(0o755)
    done = shell("python -m pip install -q --no-deps -e .", cwd=folder)

    assert done.returncode == 0, done.stderr
    assert (make, activate) == ("python3 -m venv .venv", ". .venv/bin/activate")
    assert upgrade == "pip install -q --upgrade pip"  # it takes a network, as do torch and the group
    assert install.startswith("pip install -q -e . --group dev torch==")
    return lambda lines: shell(f"{activate}\n{lines}", cwd=folder), folder


def test_a_file_of_tests(clone):
    """The first command of CONTRIBUTING.md that runs tests passes."""
    shell, _ = clone
    (command,) = re.findall(r"^\| `(pytest [^`]+)`", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)

    done = shell(command)

    assert done.returncode == 0, done.stdout


def test_a_rule_and_its_mutant(clone):
    """The rule and the mutant of the page are appended where it says, and each of its commands exits with 0."""
    pytest.importorskip("torch")
    shell, folder = clone
    for name, text in APPENDED.findall((ROOT / "docs" / "add-a-rule.md").read_text()):
        with (folder / name).open("a") as file:
            file.write(f"\n\n{text}")
    lines = [line for block in blocks("docs/add-a-rule.md") for line in block if line.startswith("hooklaw ")]

    assert [line.split()[1] for line in lines] == ["explain", "run", "mutants"]
    for line in lines:
        done = shell(line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    killers = [line.split() for line in done.stdout.replace(",", "").splitlines() if line.startswith("  killed by")]
    assert killers
    assert all("tensor-hook.handle.remove-in-any-order" in names for names in killers)


def test_every_environment_exists():
    """Each environment of tox that CONTRIBUTING.md names exists."""
    named = re.findall(r"`tox run -e (\w+)`", (ROOT / "CONTRIBUTING.md").read_text())
    known = re.findall(
        r"[\w-]+", " ".join(re.findall(r"^\[testenv:(.+)\]$", (ROOT / "tox.ini").read_text(), re.MULTILINE))
    )

    assert named
    assert set(named) <= set(known)
