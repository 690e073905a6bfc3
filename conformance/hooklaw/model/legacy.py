"""The older kind of backward hooks of a module: they belong to the Node that made the output, whatever is behind it."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from hooklaw.model.errors import HookKindsError
from hooklaw.model.hooks import Hook
from hooklaw.model.tensor import Tensor

KIND = "legacy_backward"


class Exclusive:
    """Of which kind the backward hooks of a module are, or those of all modules: none, full, or the older kind."""

    kind = ""

    def admit(self, kind: str) -> None:
        """Let hooks of a kind be registered; those of the other kind never after them."""
        if kind not in ("backward", KIND):
            return
        if self.kind not in ("", kind):
            raise HookKindsError("a module takes full backward hooks or those of the older kind, not both")
        self.kind = kind


def put(module: Any, hooks: Sequence[Hook], output: Any) -> None:
    """Put the hooks behind the last Node of a forward: they are given what this Node was given and what it returns."""
    made_by = _first(output).made_by if hooks else None
    if made_by:
        for hook in hooks:
            made_by.node.post_hooks.add(partial(hook, module))


def _first(output: Any) -> Tensor:
    """Return the first tensor of an output: what made the others has no hooks."""
    while not isinstance(output, Tensor):
        values = cast("dict[str, Any]", output).values() if isinstance(output, dict) else ()
        output = next(one for one in values if isinstance(one, Tensor)) if values else output[0]
    return output
