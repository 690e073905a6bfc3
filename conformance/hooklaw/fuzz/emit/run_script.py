"""Running emitted code: its events, in the form of a replay's, so that the two can be compared."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import Event, PlannedError, Replay, kind_of

PLAIN = frozenset({"boxes", "forget", "inspect", "node", "mode"})
"""Events that are words, numbers and bools."""


Saw = Callable[..., object]


def _plainly(saw: Saw) -> Saw:
    return saw


def events_of(
    text: str, program: Sequence[Instruction], backend: Any, wrapped: Callable[[Saw], Saw] = _plainly
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
        self._gradients = {
            instruction.made[0]: len(instruction.made) for instruction in program if instruction.op == "grad"
        }

    def saw(self, label: str, *values: Any) -> None:
        """Note an event."""
        log, seen = self._run.log, self._run.seen
        if label == "error":
            self._error(*values)
        elif label in PLAIN or label.endswith(".made"):
            log((label, *values))
        elif label == "save":
            log((label, *map(seen, values)))
        elif label.endswith((".value", ".leaf")):
            log((label, seen(values[0])))
        elif label.endswith(".layout"):
            log((label, list(values[0])))
        elif label.endswith((".grad", ".saved", ".pack", ".backward")):
            self._of_a_name(label, values)
        elif label in self._gradients:
            place = self._gradients[label] - 1
            log((label, *values[:place], *map(seen, values[place:])))
        elif values and isinstance(values[0], str):
            log((label, values[0], *map(seen, values[1:])))
        else:
            log((label, *map(seen, values), self._run.backend.is_grad_enabled()))

    def _of_a_name(self, label: str, values: tuple[Any, ...]) -> None:
        run, mode = self._run, self._run.backend.is_grad_enabled()
        if label.endswith(".grad"):
            if values[0] is not None:
                run.log((label, run.seen(values[0])))
        elif label.endswith(".saved"):
            run.log((label, run.seen(values[0]), *map(self._standing, values[0])))
        elif label.endswith(".pack"):
            run.log((label, run.seen(values[0]), *self._standing(values[0]), mode))
        else:
            run.log((label, run.seen(values), mode))

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
