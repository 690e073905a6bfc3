"""The registry of a module: its parameters, buffers and submodules by name, and the registration hooks."""

from collections.abc import Iterator
from typing import Any

from hooklaw.model.flags import on
from hooklaw.model.hooks import Hook, Hooks
from hooklaw.model.tensor import Tensor

KINDS = ("parameter", "buffer", "module")
registration_hooks = {kind: Hooks() for kind in KINDS}
"""Global hooks, called when any module registers something."""


class Registry:
    """Makes registered values attributes; assigning to such an attribute registers the new value."""

    registered: dict[str, dict[str, Any]]

    def __init__(self) -> None:
        self.__dict__["registered"] = {kind: {} for kind in KINDS}

    def register(self, kind: str, name: str, value: Any) -> None:
        """Register a parameter, a buffer or a module; a hook may return another value to register."""
        if name not in self.registered[kind] and hasattr(self, name):
            raise KeyError(f"attribute {name!r} exists and is not a {kind}")
        for hook in called(registration_hooks[kind]):
            result = hook(self, name, value)
            value = value if result is None else result
        self.registered[kind][name] = value

    def own_state(self) -> dict[str, Tensor]:
        """Return the parameters, then the buffers, by name."""
        return {**self.registered["parameter"], **self.registered["buffer"]}

    def children(self) -> dict[str, Any]:
        """Return the submodules by name, in order of registration."""
        return self.registered["module"]

    def __getattr__(self, name: str) -> Any:
        for values in vars(self).get("registered", {}).values():  # deepcopy asks before there is any
            if name in values:
                return values[name]
        raise AttributeError(f"no attribute and no registered value has the name {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        for kind in KINDS:
            if name in self.registered[kind]:
                return self.register(kind, name, value)
        return super().__setattr__(name, value)


def called(hooks: Hooks) -> Iterator[Hook]:
    """Yield the hooks that are registered when the first one is called."""
    before = dict(hooks)
    for hook in before.values():
        if [*hooks] != [*before] and on("hooks-of-states-and-steps-stay-as-they-are"):
            raise RuntimeError("a hook added or removed hooks while others were still to be called")
        yield hook
