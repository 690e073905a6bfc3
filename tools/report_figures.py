"""Measure the report: `python tools/report_figures.py`, in an environment with playwright, and chromium on the path.

It builds 500 rules on 12 backends from the published records (rules repeated under new ids, results repeated over
twelve columns), writes them as one file, and opens the file five times in one browser.
"""

import shutil
import statistics
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from msgspec.structs import replace
from playwright.sync_api import sync_playwright

from hooklaw.results.records import Footer, Run, RunKind
from hooklaw_reports import html, published
from hooklaw_reports.page import build

RULES, BACKENDS, OPENINGS = 500, 12, 5
COMPLETE = "performance.getEntriesByType('navigation')[0].domComplete"


def _large() -> list[Run]:
    shipped = [run for run in published.runs() if run.header.run_kind is RunKind.RULES]
    return [_repeated(run, number) for number, run in enumerate(islice(cycle(shipped), BACKENDS))]


def _repeated(run: Run, number: int) -> Run:
    taken = list(islice(enumerate(cycle(run.header.rules)), RULES))
    rules = [replace(rule, id=f"{rule.id}.n{place}") for place, rule in taken]
    results = {
        made.id: replace(run.results[rule.id], rule=made.id) for made, (_, rule) in zip(rules, taken, strict=True)
    }
    header = replace(run.header, backend=f"{run.header.backend}-{number}", rules=rules, collected=RULES)
    return Run(header, results, Footer(run=header.run, results=RULES, seconds=1.0))


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        path = Path(folder, "report.html")
        began = time.perf_counter()
        html.write(path, html.render(build(_large())))
        made = time.perf_counter() - began
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        took: list[float] = []
        for _ in range(OPENINGS):
            page = browser.new_page()
            page.goto(path.as_uri())
            took.append(page.evaluate(COMPLETE))
            page.close()
        browser.close()
        size = path.stat().st_size
    sys.stdout.write(
        f"{RULES} rules x {BACKENDS} backends  {size / 1e6:.2f} MB, made in {made:.2f} s\n"
        f"opens in {statistics.median(took) / 1000:.2f} s (median of {OPENINGS}, {min(took) / 1000:.2f} to "
        f"{max(took) / 1000:.2f})\n"
    )


if __name__ == "__main__":
    main()
