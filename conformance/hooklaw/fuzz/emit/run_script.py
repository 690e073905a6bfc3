"""Running emitted code: its events, in the form of a replay's, so that the two can be compared."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import Event, PlannedError, Replay, kind_of

NUMBERS = frozenset({"boxes", "node"})
"""Events that have numbers."""
BARE = NUMBERS | {"inspect", "mode", "save"}
ENDS = (".grad", ".layout", ".leaf", ".made", ".saved", ".type", ".value")
"""Events that do not show the grad mode, and how further ones end."""


Saw = Callable[..., object]


def events_of(
    text: str, program: Sequence[Instruction], backend: Any, wrapped: Callable[[Saw], Saw] = lambda saw: saw
) -> list[Event]:
    """Replay code that was emitted with `log=True`, and return its events; `saw` may be wrapped for a compiler."""
    events: list[Event] = []
    namespace: dict[str, Any] = {}
    witness = _Witness(program, backend, namespace, events.append)
    namespace["saw"] = wrapped(witness.saw)
    backend.reset()
    exec(compile(text, "<emitted>", "exec"), namespace)  # noqa: S102 - it is our own code that is to be proved
    return events


class _Witness:
    """Collects what the code says that it saw."""

    def __init__(
        self,
        program: Sequence[Instruction],
        backend: Any,
        namespace: dict[str, Any],
        log: Callable[[Event], object],
    ) -> None:
        self._run = Replay(backend, log)
        self._namespace = namespace
        self._made = {instruction.made[0] for instruction in program if instruction.op == "grad"}

    def saw(self, label: str, *values: Any) -> None:
        """Note an event."""
        run = self._run
        if label == "error":
            self._error(*values)
            return
        if label.endswith(".grad") and values[0] is None:
            return
        mode = () if self._is_bare(label, values) else (run.backend.is_grad_enabled(),)
        if label in NUMBERS or label.endswith((".made", ".layout")):
            shown = values
        elif label.endswith(".backward"):
            shown = (run.seen(values),)
        elif label.endswith(".saved"):
            shown = (run.seen(values[0]), *map(self._standing, values[0]))
        else:
            standing = self._standing(values[0]) if label.endswith(".pack") else ()
            shown = (*map(run.seen, values), *standing)
        run.log((label, *shown, *mode))

    def _is_bare(self, label: str, values: tuple[Any, ...]) -> bool:
        """Return whether an event does not show the grad mode."""
        bare = label in BARE or label in self._made or label.endswith(ENDS)
        return bare or (bool(values) and isinstance(values[0], str))

    def _standing(self, tensor: Any) -> tuple[Any, ...]:
        """Return how a tensor is related to those that the code has names for."""
        run = self._run
        own = {name: value for name, value in self._namespace.items() if run.backend.is_tensor(value)}
        run.tensors.clear()
        run.tensors.update(own)
        try:
            return run.standing(tensor)
        finally:
            run.tensors.clear()

    def _error(self, where: Any, what: str, error: Exception | None) -> None:
        if error is not None:
            kind = kind_of(PlannedError() if type(error) is Exception else error)
            self._run.log(("error", where, what, kind))
