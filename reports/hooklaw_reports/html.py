"""The page as HTML: one file that opens from disk, loads nothing from the network and runs only its own script."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from hooklaw import __version__
from hooklaw.results.figures import SIZES
from hooklaw.results.output import output_errors, replace_file
from hooklaw_reports.columns import CHARTED, COLUMNS
from hooklaw_reports.page import Page
from hooklaw_reports.payload import payload
from hooklaw_reports.sheet import parts

TEMPLATES = files("hooklaw_reports") / "templates"
SCRIPTS = ("lanes.js", "panel.js", "chart.js", "offload.js", "sheet.js", "folklore.js", "report.js")
STYLES = ("report.css", "offload.css", "folklore.css")


def render(page: Page) -> str:
    """Return the whole file; the same runs always make the same bytes."""
    environment = Environment(
        loader=PackageLoader("hooklaw_reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = "".join(map(_asset, STYLES)) + "".join(
        f'[data-page="{sheet.kind.name}"] {{ --columns: {len(sheet.columns)}; }}\n' for sheet in page.sheets
    )
    script = "".join(map(_asset, SCRIPTS))
    return environment.get_template("report.html.j2").render(
        page=page,
        charted=CHARTED,
        columns=COLUMNS,
        units=[unit for unit, _ in SIZES[:3]],
        parts=parts,
        css=css,
        script=script,
        data=payload(page),
        policy=_policy(css, script),
        version=__version__,
    )


def write(path: Path, text: str) -> None:
    """Replace the file, whole or not at all; OutputError if it cannot be written."""
    with output_errors(f"write the report to {path}", "; name another file with -o"):
        replace_file(path, text)


def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _policy(css: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
