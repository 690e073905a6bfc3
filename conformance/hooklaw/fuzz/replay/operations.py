"""Operations: the function that executes each instruction, and the traits by which the other stages know it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction

Execute = Callable[[Any, Instruction], None]
"""Executes an instruction of a `Replay`, its first argument."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """What the stages of the fuzzer know of an operation; calling it on a function registers that operation."""

    needs: tuple[Capability, ...] = ()
    """Capabilities that the operation needs beside the core verbs."""
    also_needs: Callable[[Instruction], Iterable[Capability]] | None = None
    """Capabilities that an instruction needs because of its arguments."""
    in_inference: bool = False
    """Executed in inference mode too, where nothing has a gradient."""
    view: bool = False
    """Makes a view of its input."""
    aliases: bool = False
    """What it makes shares the storage of its input."""
    saves: bool = False
    """Its node saves tensors."""
    periodic: bool = False
    """Large inputs give results that depend on the last bit."""
    frees: bool = False
    """May free what was packed, so that the packed objects which are still alive are counted after it."""
    shows_hooks: bool = False
    """Its event depends on the hooks there are: a hook keeps its tensors alive, and saving a tensor warns of hooks."""
    hooks: Literal["", "tensor", "node", "module", "registration", "state", "step"] = ""
    """On what it registers a hook."""
    everywhere: bool = False
    """Its hook is registered for the whole process, and must be removed in the end."""
    simplifies_to: Literal["", "scale", "scale_", "backward"] = ""
    """The operation that the shrinker tries in its place."""
    enters: bool = False
    """Enters a context."""
    refuses: bool = False
    """Enters a context in which some other contexts cannot be entered."""
    safe: bool = False
    """Never fails."""
    sets_up: bool = False
    """Makes leaves or modules, which a compiled forward takes as inputs."""
    ends_forward: bool = False
    """Cannot be a part of a compiled forward (`leave` can, where the forward has entered the context)."""

    def __call__(self, execute: Execute) -> Execute:
        """Register the function that executes the instructions of its name."""
        OPERATIONS[execute.__name__] = Operation(execute, self)
        return execute


operation = Traits


class Operation(NamedTuple):
    """An operation: how it is executed, and its traits."""

    execute: Execute
    traits: Traits


OPERATIONS: dict[str, Operation] = {}
"""The operations by name; the other modules of this package fill it when the package is imported."""


def traits_of(instruction: Instruction) -> Traits:
    """Return the traits of an instruction's operation."""
    return OPERATIONS[instruction.op].traits


def having(trait: str) -> frozenset[str]:
    """Return the names of the operations that have a trait."""
    return frozenset(name for name, operation in OPERATIONS.items() if getattr(operation.traits, trait))
