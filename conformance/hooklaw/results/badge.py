"""A badge of runs: the JSON that shields.io reads from an endpoint."""

import json
from collections.abc import Sequence

from hooklaw.results.records import Run
from hooklaw.results.summary import count, counted, exit_of_run
from hooklaw.results.text import name
from hooklaw.results.verdict import Exit, worst

COLOURS = {Exit.OK: "brightgreen", Exit.FIXED_OR_STALE: "yellow", Exit.REGRESSION: "red", Exit.BROKEN: "lightgrey"}
WORDS = {Exit.OK: "as expected", Exit.FIXED_OR_STALE: "fixed or stale", Exit.BROKEN: "broken"}


def badge(runs: Sequence[Run], ended: Exit | None = None) -> str:
    """Return the badge; `ended` is how the runs ended, where more is known of that than they say."""
    exit_ = ended or worst(map(exit_of_run, runs))
    label = f"hooks on {name(runs[0].header.subject)}" if len(runs) == 1 else "autograd hooks"
    made = {"schemaVersion": 1, "label": label, "message": _message(runs, exit_), "color": COLOURS[exit_]}
    return json.dumps(made, indent=1) + "\n"


def _message(runs: Sequence[Run], ended: Exit) -> str:
    found = [count(run) for run in runs]
    if ended is Exit.REGRESSION:
        return counted(sum(each.regressions for each in found), "regression")
    if len(runs) == 1 and found[0].judged and ended is not Exit.BROKEN:
        return f"{found[0].passed} of {found[0].judged} rules hold"
    return f"{counted(len(runs), 'run')} {WORDS[ended]}"
