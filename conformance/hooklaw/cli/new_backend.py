"""Write a package with a backend for your own framework, which passes at once, and a CI workflow that judges it.

The folder NAME holds the package with the backend and its expectation file, a tox.ini, and workflows for GitHub and
GitLab. A framework of sixty lines stands in for yours; the README in the folder says how to put yours in its place.

Example:
    hooklaw new-backend mygrad
"""

import argparse
import os
import re
import shutil
from pathlib import Path

import jinja2

from hooklaw.backend.loading import BUILTIN
from hooklaw.cli import say
from hooklaw.cli.docs import read_page
from hooklaw.errors import OutputError
from hooklaw.results.output import output_errors
from hooklaw.results.verdict import Exit

TEMPLATES = Path(__file__).with_name("new_backend_files")
FILES = {
    "pyproject.toml": "pyproject.toml.j2",
    "README.md": "README.md.j2",
    "tox.ini": "tox.ini.j2",
    ".gitlab-ci.yml": "gitlab.yml.j2",
    ".github/workflows/hooklaw.yml": "github.yml.j2",
}
SAVED = re.compile(r"as `([\w.]+)`[^\n]*\n\n```\w+\n(.*?)```", re.DOTALL)
"""A file that a page has its reader save."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("name", metavar="NAME", help="of the backend, as in `hooklaw run --backend NAME`")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="the folder to write; default: NAME")


def main(args: argparse.Namespace) -> int:
    """Write the files and say what to do next."""
    name: str = args.name
    _check_name(name)
    folder: Path = args.folder or Path(name)
    _write(folder, files(name))
    say(
        f"{folder} has a backend named {name!r}, which judges a framework of sixty lines until yours is in its place.\n"
        f"Next:\n  cd {folder}\n  pip install -e .\n  hooklaw run --backend {name}\nThen see README.md there.\n"
    )
    return Exit.OK.code


def files(name: str) -> dict[str, str]:
    """Return the text of each file of the project, by its path."""
    package = f"{name.replace('-', '_')}_hooklaw"
    saved = dict(SAVED.findall(read_page("add-a-backend")))
    backend = _replaced(
        saved["tiny_backend.py"],
        {
            '"""The backend for tiny."""': f'"""The backend for {name}."""',
            "    import tiny\n": f"    from {package} import tiny\n",
            'name = "tiny"': f'name = "{name}"',
            '"tiny.toml"': '"expectations.toml"',
        },
    )
    made = {
        f"{package}/__init__.py": backend,
        f"{package}/tiny.py": saved["tiny.py"],
        f"{package}/expectations.toml": saved["tiny.toml"],
    }
    for path, template in FILES.items():
        text = (TEMPLATES / template).read_text(encoding="utf-8")
        made[path] = jinja2.Template(text, keep_trailing_newline=True).render(name=name, package=package)
    return made


def _replaced(text: str, replacements: dict[str, str]) -> str:
    for old, new in replacements.items():
        assert text.count(old) == 1  # noqa: S101 - the page and this file are one
        text = text.replace(old, new)
    return text


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise OutputError(f"{name!r} is not a name for a backend: use lower-case letters, digits and hyphens")
    if name in BUILTIN:
        raise OutputError(f"{name!r} is a backend of hooklaw itself: choose another name")


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write the files into a new folder, all or none; OutputError if there is something in it already."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}")
    with output_errors(f"write {folder}", "; name another folder with --folder"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputError(f"{folder} exists and is not an empty folder: name another with --folder")
        try:
            for path, text in texts.items():
                (part / path).parent.mkdir(parents=True, exist_ok=True)
                (part / path).write_text(text, encoding="utf-8")
            part.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
