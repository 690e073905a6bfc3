"""Condition: a name, what it changes, and how a rule runs under it; and the wrapper that conditions build on."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.protocol import Backend


class Clears(Protocol):
    """A trace, as far as conditions know it."""

    def clear(self) -> None:
        """Forget everything that was logged."""
        ...


Body = Callable[[], None]
"""A rule, ready to run."""


def as_it_is(backend: Any) -> Any:
    """Return the backend itself."""
    return backend


def just(backend: Backend, trace: Clears, body: Body) -> None:
    """Run a rule in the usual surroundings."""
    del backend, trace
    body()


class Condition(NamedTuple):
    """What is changed while a rule runs, though it should make no difference."""

    name: str
    what: str
    """What it changes, in one sentence."""
    needs: tuple[Capability, ...] = ()
    """What a backend must be able to do so that it can be judged under the condition."""
    wrap: Callable[[Any], Any] = as_it_is
    """Returns the backend that the rule is given."""
    around: Callable[[Backend, Clears, Body], None] = just
    """Runs the rule in its surroundings."""
    verbs: tuple[str, ...] = ()
    """Optional verbs that a backend must have."""

    def why_not(self, backend: Backend) -> str:
        """Return why a backend cannot be judged under the condition, or an empty string."""
        if said := getattr(backend, "not_under", {}).get(self.name):
            return f"{backend.name} cannot be judged under {self.name}: {said}"
        lacks = [str(need) for need in self.needs if need not in backend.capabilities]
        lacks += [f"the verb {verb}" for verb in self.verbs if not hasattr(backend, verb)]
        return f"the condition {self.name} needs {', '.join(lacks)}, which {backend.name} lacks" if lacks else ""


class Wrapper:
    """A backend behind which another one does the work; a condition overrides the verbs that it changes."""

    def __init__(self, backend: Backend) -> None:
        self.inner: Any = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
