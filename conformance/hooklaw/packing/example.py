"""A property shown to its reader: the law, and the very program for the simplest case, with a packer of torch's own."""

from difflib import get_close_matches

from hooklaw.errors import PackerError, UnknownRuleError
from hooklaw.law.rule import Rule

PREFIX = "packer."
"""How the ids of properties begin."""
EXAMPLE = "torch.autograd.graph:save_on_cpu"


def shown(property_id: str) -> tuple[Rule, str]:
    """Return the law and its program; UnknownRuleError names ids like it, PackerError says that torch is missing."""
    try:
        from hooklaw.packing import law  # noqa: PLC0415 - this verb shows rules too, and those need no Hypothesis
        from hooklaw.packing.check import Trial  # noqa: PLC0415 - likewise
        from hooklaw.packing.subject import lines_of, resolve, subject  # noqa: PLC0415 - likewise

        known = law.properties()
    except ImportError as error:
        raise PackerError(f"packers are judged with torch, which does not import: {error}") from error
    if property_id not in known:
        near = get_close_matches(property_id, known, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "`hooklaw packer --list` shows all ids"
        raise UnknownRuleError(f"no property of packers has the id {property_id!r}: {hint}")
    found = known[property_id]
    example = subject(resolve(EXAMPLE), lines_of(EXAMPLE), "cpu", EXAMPLE)
    return found.rule, Trial(example, examples=1).simplest(found)
