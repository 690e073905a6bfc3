"""What frameworks document about PyTorch's APIs, and what the rules say of it: rows of docs/compatibility.md.

The statements are in api_statements.toml, beside this module.
"""

import tomllib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from hooklaw.law.rule import Level, Rule
from hooklaw.results.records import Run
from hooklaw.results.verdict import JUDGED, Outcome

TABLE = Path(__file__).with_suffix(".toml")
SAYS = ("identical", "only the call differs", "torch takes more parameters", "combination", "none")
"""What a statement may say, besides how the APIs differ."""
DIFFERS = "differs: "
SHOWN = 3
"""How many of the rules that do not hold a verdict names."""
NOT_JUDGED = "not judged"
HEADS = ["PyTorch", "its counterpart", "the documentation says", "rules that hold", "verdict"]
INTRO = """
## What the frameworks' documentation says of PyTorch's APIs

Paddle and MindSpore document for many of PyTorch's APIs whether an API of their own equals it.
"none" means that there is no counterpart.
The MUST and SHOULD rules about an API judge each statement, as far as the backend can be judged by them.
"holds" means that all of these rules hold, also where the documentation names a difference.
Each statement, from `tools/api_statements.toml`, is that of the linked version of a page.
[The backends](frameworks.md) may call a function of another name.
"""


class Statement(NamedTuple):
    """What a framework's documentation says of an API, where it says so, and the rules that judge it."""

    framework: str
    torch: str
    api: str
    says: str
    page: str
    rules: tuple[str, ...]


def statements(text: str, law: Iterable[Rule]) -> list[Statement]:
    """Return the statements of a table, each with the ids of its MUST and SHOULD rules.

    Raises SystemExit for a rule that does not exist and for a word that is not one of SAYS.
    """
    table, rules = tomllib.loads(text), [*law]
    return [_statement(entry, table["pages"], rules) for entry in table["statement"]]


def _statement(entry: dict[str, Any], pages: dict[str, str], law: Sequence[Rule]) -> Statement:
    where, says = f"{TABLE.name}: {entry['framework']}, {entry['torch']}", entry["says"]
    if says not in SAYS and not says.startswith(DIFFERS):
        raise SystemExit(f"{where}: {says!r} is none of {', '.join(SAYS)}, and does not begin with {DIFFERS!r}")
    named = {rule.id: rule for name in entry["rules"] for rule in _named(name, law, where)}
    ids = tuple(rule.id for rule in named.values() if rule.level is not Level.MAY)
    page = entry["page"].format_map(pages)
    return Statement(entry["framework"], entry["torch"], entry.get("api", ""), says, page, ids)


def _named(name: str, law: Sequence[Rule], where: str) -> list[Rule]:
    found = [rule for rule in law if name == rule.chapter or fnmatchcase(rule.id, name)]
    if not found:
        raise SystemExit(f"{where}: no rule has the id or the chapter {name!r}")
    return found


def rows(found: Iterable[Statement], run: Run) -> list[list[str]]:
    """Return what stands below HEADS for each statement, those that are not judged last."""
    return sorted((_row(one, run) for one in found), key=lambda row: row[-1] == NOT_JUDGED)


def _row(one: Statement, run: Run) -> list[str]:
    outcomes = {rule: outcome for rule in one.rules if (outcome := run.outcome(rule)) in JUDGED}
    broken = [rule for rule, outcome in outcomes.items() if outcome is not Outcome.PASS]
    held = f"{len(outcomes) - len(broken)} of {len(outcomes)}" if outcomes else "\u2013"
    api = f"`{one.api}`" if one.api else "\u2013"
    return [f"`{one.torch}`", api, f"[{one.says}]({one.page})", held, verdict(len(outcomes), broken)]


def verdict(judged: int, broken: Sequence[str]) -> str:
    """Return in words whether all judged rules hold, with the first of those that do not."""
    if not judged:
        return NOT_JUDGED
    if not broken:
        return "holds"
    names = [f"`{rule}`" for rule in broken[:SHOWN]] + ["…"] * (len(broken) > SHOWN)
    return f"does not hold: {', '.join(names)} ({len(broken)})"
