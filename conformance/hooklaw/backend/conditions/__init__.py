"""Conditions: what should make no difference to a rule, such as the dtype of its tensors or the thread it runs in.

A rule is written once, on small contiguous float32 tensors in the main thread. Under a condition it runs unchanged: on
the same backend behind a wrapper, or in other surroundings. A rule whose law a condition changes says so in
``except_under``, with the reason.
"""

from hooklaw.backend.conditions._condition import Condition
from hooklaw.backend.conditions._dtypes import DTYPES
from hooklaw.backend.conditions._layouts import LAYOUTS
from hooklaw.backend.conditions._surroundings import SURROUNDINGS
from hooklaw.errors import UnknownConditionError, did_you_mean

__all__ = ["ALL", "CONDITIONS", "UNCHANGED", "Condition", "find_condition"]

ALL = "all"
UNCHANGED = Condition("", "Nothing is changed.")
CONDITIONS: dict[str, Condition] = {made.name: made for made in (*DTYPES, *LAYOUTS, *SURROUNDINGS)}
"""All conditions by name, in the order in which they run."""


def find_condition(name: str) -> Condition:
    """Return the condition of this name, UNCHANGED for an empty one.

    UnknownConditionError suggests similar names if there is none.
    """
    if not name:
        return UNCHANGED
    if name in CONDITIONS:
        return CONDITIONS[name]
    hint = did_you_mean(name, [*CONDITIONS, ALL], f"choose from {', '.join(CONDITIONS)} or {ALL}")
    raise UnknownConditionError(f"no condition has the name {name!r}: {hint}")
