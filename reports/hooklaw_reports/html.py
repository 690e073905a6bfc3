"""The report: one HTML file that opens from disk, asks the network for nothing and runs nothing but its own script."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from hooklaw import __version__
from hooklaw.errors import OutputError
from hooklaw.results.records import Run, replace_file
from hooklaw_reports.kinds import sorted_out
from hooklaw_reports.payload import payload
from hooklaw_reports.view import page

TEMPLATES = files("hooklaw_reports") / "templates"
SCRIPTS = ("lanes.js", "panel.js", "chart.js", "offload.js", "sheet.js", "report.js")
STYLES = ("report.css", "offload.css")


def render(runs: Sequence[Run], title: str = "") -> str:
    """Return the whole page; the same runs always make the same bytes."""
    environment = Environment(
        loader=PackageLoader("hooklaw_reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = "".join(map(_asset, STYLES)) + "".join(
        f'[data-page="{kind.name}"] {{ --columns: {len(its)}; }}\n' for kind, its in sorted_out(runs)
    )
    script = "".join(map(_asset, SCRIPTS))
    return environment.get_template("report.html.j2").render(
        page=page(runs, title),
        css=css,
        script=script,
        data=payload(runs),
        policy=_policy(css, script),
        version=__version__,
    )


def write(path: Path, text: str) -> None:
    """Put the text in place of the file, whole or not at all; OutputError where it cannot be written."""
    try:
        replace_file(path, text)
    except OSError as error:
        raise OutputError(f"cannot write the report to {path}: {error.strerror}; name another file with -o") from error


def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _policy(css: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
