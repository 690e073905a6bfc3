"""The capabilities that a program needs; a program that needs more than a backend has is left out."""

from collections.abc import Sequence

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction, action_of
from hooklaw.fuzz.replay.hooks import NEEDED_BY_ACTIONS
from hooklaw.fuzz.replay.operations import traits_of

ALWAYS = frozenset({Capability.FLOAT64, Capability.RETAINS_GRAD, Capability.GRAD_MODE, Capability.SEED_GRADIENT})
"""What running any program and looking at its gradients needs."""


def needs(program: Sequence[Instruction]) -> frozenset[Capability]:
    """Return the capabilities that a program uses."""
    found: set[Capability] = set()
    for instruction in program:
        traits = traits_of(instruction)
        found.update(traits.needs)
        if traits.also_needs:
            found.update(traits.also_needs(instruction))
        if instruction.thread:
            found.add(Capability.THREADS)
        action = action_of(instruction)
        if action:
            found.update(NEEDED_BY_ACTIONS.get(action[0], ()))
    return frozenset(found)
