"""What modules have under names: parameters, buffers and other modules, and the hooks on their registration."""

from collections.abc import Iterator
from typing import Any

from hooklaw.model.flags import on
from hooklaw.model.hooks import Hook, Hooks
from hooklaw.model.tensor import Tensor

KINDS = ("parameter", "buffer", "module")
registration_hooks = {kind: Hooks() for kind in KINDS}
"""Hooks on what any module registers."""


class Registry:
    """What is registered under a name is the attribute of that name; to assign to it is to register anew."""

    registered: dict[str, dict[str, Any]]

    def __init__(self) -> None:
        self.__dict__["registered"] = {kind: {} for kind in KINDS}

    def register(self, kind: str, name: str, value: Any) -> None:
        """Register a parameter, a buffer or a module: what a hook returns takes its place."""
        if name not in self.registered[kind] and hasattr(self, name):
            raise KeyError(f"there is an attribute {name!r} that is no {kind}")
        for hook in called(registration_hooks[kind]):
            result = hook(self, name, value)
            value = value if result is None else result
        self.registered[kind][name] = value

    def own_state(self) -> dict[str, Tensor]:
        """Return the parameters, then the buffers, by name."""
        return {**self.registered["parameter"], **self.registered["buffer"]}

    def children(self) -> dict[str, Any]:
        """Return the modules inside this one by name, in the order in which they were registered."""
        return self.registered["module"]

    def __getattr__(self, name: str) -> Any:
        for values in vars(self).get("registered", {}).values():  # a copy in the making has none yet
            if name in values:
                return values[name]
        raise AttributeError(f"there is no attribute {name!r}, and nothing is registered as that")

    def __setattr__(self, name: str, value: Any) -> None:
        for kind in KINDS:
            if name in self.registered[kind]:
                return self.register(kind, name, value)
        return super().__setattr__(name, value)


def called(hooks: Hooks) -> Iterator[Hook]:
    """Yield the hooks to call: those that are there when the first one is called."""
    before = dict(hooks)
    for hook in before.values():
        if [*hooks] != [*before] and on("hooks-of-states-and-steps-stay-as-they-are"):
            raise RuntimeError("a hook was added or removed by another one that is called before the last")
        yield hook
