"""Properties for those who judge no packer: their laws, and the program of one for the simplest case."""

from hooklaw.errors import PackerError, UnknownRuleError, did_you_mean
from hooklaw.law.rule import Rule

PREFIX = "packer."
"""How the ids of properties begin."""
EXAMPLE = "torch.autograd.graph:save_on_cpu"


def laws() -> list[Rule]:
    """Return the law of each property; needs torch and Hypothesis."""
    from hooklaw.packing import _law  # noqa: PLC0415 - `shown` says why

    return [found.rule for found in _law.properties().values()]


def shown(property_id: str) -> tuple[Rule, str]:
    """Return the law and its program; UnknownRuleError suggests similar ids, PackerError if torch is missing."""
    try:
        from hooklaw.packing import _law  # noqa: PLC0415 - this verb shows rules too, and those need no Hypothesis
        from hooklaw.packing._check import Checker  # noqa: PLC0415 - likewise
        from hooklaw.packing._packer import examine, lines_of, resolve  # noqa: PLC0415 - likewise

        known = _law.properties()
    except ImportError as error:
        raise PackerError(f"packers are judged with torch, which does not import: {error}") from error
    if property_id not in known:
        hint = did_you_mean(property_id, known, "`hooklaw packer --list` shows all ids")
        raise UnknownRuleError(f"no property of packers has the id {property_id!r}: {hint}")
    found = known[property_id]
    example = examine(resolve(EXAMPLE), lines_of(EXAMPLE), "cpu", EXAMPLE)
    return found.rule, Checker(example, examples=1).simplest(found)
