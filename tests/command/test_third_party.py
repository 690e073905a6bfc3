"""What a third party does in the first hour, from a wheel and outside of the repository, word for word."""

import re
import shlex
import shutil
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from hooklaw.cli.new_backend import files
from installed import shell_in

ROOT = Path(__file__).parents[2]
PAGES = {
    "add-a-backend": None,
    "judge-a-functional-framework": None,
    "judge-a-tensor-subclass": "torch",
    "judge-a-device": "torch",
    "add-a-rule": None,
}
"""The pages that have their reader save files, with the framework that each needs beside what it installs itself."""
SAVED = re.compile(r"as `([\w./-]+)`[^\n]*\n\n```\w+\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^(?:PYTHONPATH=\. hooklaw .+|hooklaw .+ --import .+)$", re.MULTILINE)
"""What uses the saved files, or a device of hooklaw's own."""


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Return a shell in an environment with hooklaw's wheel."""
    folder = tmp_path_factory.mktemp("installed")
    run = shell_in(folder)
    wheels = shlex.quote(str(folder / "wheels"))
    done = run(
        f"python -m pip wheel -q --no-deps -w {wheels} {shlex.quote(str(ROOT))}\n"
        f"python -m pip install -q --no-deps --force-reinstall {wheels}/*.whl\n"
        "python -m pip install -q autograd\n"
        "python -c 'import hooklaw; print(hooklaw.__file__)'\n"
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(folder)
    return run


@pytest.mark.parametrize("page", PAGES)
def test_page(shell, tmp_path, page):
    """The files that a page has its reader save are judged, and each command of the page exits with 0."""
    if framework := PAGES[page]:
        pytest.importorskip(framework)
    text = shell(f"hooklaw docs {page}").stdout
    for name, content in SAVED.findall(text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    commands = COMMAND.findall(text)

    assert len(commands) >= 2
    for line in commands:
        done = shell(line, cwd=tmp_path)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_wheel_has_the_pages(shell):
    """Each page of the repository can be printed from the wheel."""
    names = {line.split()[0] for line in shell("hooklaw docs").stdout.splitlines()[:-2]}

    assert {path.stem for path in (ROOT / "docs").rglob("*.md")} == names


def test_device_of_an_installed_package(shell, tmp_path):
    """A device needs no --import where its package has an entry point by which torch imports it."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "_import_device_backends"):
        pytest.skip("this torch imports no devices by itself")
    page = (ROOT / "docs" / "judge-a-device.md").read_text()
    shutil.copy(ROOT / "backends" / "hooklaw_backends" / "npy_device.py", tmp_path)
    (entry_point,) = re.findall(r'\[project.entry-points."torch.backends"\]\n(npy) = "(.+)"', page)
    made = tmp_path / "npy-0.1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: npy\nVersion: 0.1\n")
    (made / "entry_points.txt").write_text("[torch.backends]\n{} = {}\n".format(*entry_point))

    line = "hooklaw explain tensor-hook.order.registration --backend torch-eager:npy"
    without, done = shell(line, cwd=tmp_path), shell(line, cwd=tmp_path, PYTHONPATH=str(tmp_path))

    assert "on torch-eager:npy (torch" not in without.stdout
    assert done.returncode == 0, done.stderr
    assert "on torch-eager:npy (torch" in done.stdout


def test_new_backend(shell, tmp_path):
    """In an empty folder `hooklaw new-backend` writes a package whose CI passes at once, step by step."""
    assert shell("hooklaw new-backend mylib", cwd=tmp_path).returncode == 0
    folder = tmp_path / "mylib"
    workflow = yaml.safe_load((folder / ".github" / "workflows" / "hooklaw.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["hooklaw"]["steps"] if "run" in step]

    for line in steps:
        done = shell(line, cwd=folder)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    assert {"mylib.jsonl", "mylib.html", "mylib.xml"} <= {path.name for path in (folder / "out").iterdir()}
    assert "mylib" in shell("hooklaw run --backend mylibb").stderr.partition("did you mean ")[2]


def test_new_backend_fails_when_the_framework_breaks(shell, tmp_path):
    """The same steps fail once the framework breaks a rule that it kept."""
    assert shell("hooklaw new-backend fragile", cwd=tmp_path).returncode == 0
    framework = tmp_path / "fragile" / "fragile_hooklaw" / "tiny.py"
    framework.write_text(framework.read_text().replace("new + tensor.gradient", "new"))

    done = shell("hooklaw run --backend fragile_hooklaw:backend", cwd=tmp_path / "fragile", PYTHONPATH=".")

    assert done.returncode == 1
    assert "grad-accum.adds" in done.stdout


def test_every_ci_runs_the_same():
    """GitLab and tox run what GitHub runs, and the page on CI shows what `new-backend` writes."""
    made = files("mylib")
    steps = yaml.safe_load(made[".github/workflows/hooklaw.yml"])["jobs"]["hooklaw"]["steps"]
    tox = ConfigParser()
    tox.read_string(made["tox.ini"])
    commands = tox["testenv:hooklaw"]["commands"].replace(" {posargs}", "").split("\n")[1:]
    shown = dict(SAVED.findall((ROOT / "docs" / "ci.md").read_text()))

    runs = [step["run"] for step in steps if "run" in step]
    assert runs == yaml.safe_load(made[".gitlab-ci.yml"])["hooklaw"]["script"]
    assert runs[1:] == commands
    assert shown == {name: made[name] for name in (".github/workflows/hooklaw.yml", ".gitlab-ci.yml")}


def test_new_backend_overwrites_nothing(verb, tmp_path):
    """A folder that holds something is left as it is."""
    (tmp_path / "mylib").mkdir()
    (tmp_path / "mylib" / "mine.py").write_text("mine")
    done = verb("new-backend", "mylib")

    assert done.returncode == 3
    assert done.stderr == "hooklaw: mylib exists and is not an empty folder: name another with --folder\n"
    assert [path.name for path in tmp_path.rglob("*")] == ["mylib", "mine.py"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("My Lib", "is not a name for a backend: use lower-case letters, digits and hyphens"),
        ("../up", "is not a name for a backend"),
        ("paddle", "is a backend of hooklaw itself: choose another name"),
    ],
)
def test_new_backend_with_a_bad_name(verb, tmp_path, name, why):
    """A name that no backend can have is refused, and nothing is written."""
    done = verb("new-backend", name)

    assert done.returncode == 3
    assert f"{name!r} {why}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_new_backend_in_a_folder_that_cannot_be_made(verb, tmp_path):
    """A folder that cannot be made is named."""
    (tmp_path / "file").write_text("")
    done = verb("new-backend", "mylib", "--folder", "file/mylib")

    assert done.returncode == 3
    assert "cannot write file/mylib: Not a directory; name another folder with --folder" in done.stderr
