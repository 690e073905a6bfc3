"""Mutants of the engine that are made as those of each kind of hook in each situation, but whose situation never is."""

from hooklaw_backends.mutants.in_situations import FAULTS, KINDS, OF_PAIRS, _made
from hooklaw_backends.mutants.over_reference import OverReference
from hooklaw_backends.mutants.situations import Situation

NEVER = Situation("never", "never", lambda *_: False)


def mutants(of):
    """Return one of each kind by name."""
    _, lose = FAULTS["lost"]
    made = {kind: _made(how, NEVER, lose) for kind, how in KINDS.items()}
    made |= {kind: make(NEVER, lose) for kind, _, _, _, make in OF_PAIRS}
    return {kind: type(of, (each, OverReference), {"__doc__": "Nothing."}) for kind, each in made.items()}
