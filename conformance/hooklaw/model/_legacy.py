"""Legacy backward hooks of a module (register_backward_hook): hooks on the Node that made the output."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from hooklaw.model.errors import HookKindsError
from hooklaw.model.hooks import Hook
from hooklaw.model.node import Node
from hooklaw.model.tensor import Tensor

KIND = "legacy_backward"


class BackwardKind:
    """The kind of a module's backward hooks, or of the global ones: none yet, full, or legacy."""

    kind = ""

    def admit(self, kind: str) -> None:
        """Register hooks of this kind from now on; raise HookKindsError if there are hooks of the other kind."""
        if kind not in ("backward", KIND):
            return
        if self.kind not in ("", kind):
            raise HookKindsError("a module takes full backward hooks or legacy backward hooks, not both")
        self.kind = kind


def put(module: Any, hooks: Sequence[Hook], inputs: Sequence[Any], output: Any) -> None:
    """Register the hooks on the Node that made the output; they get what this Node returns and what it was given."""
    made_by = _first(output).made_by if hooks else None
    if made_by:
        _warn(made_by.node, inputs, output)
        for hook in hooks:
            made_by.node.post_hooks.add(partial(hook, module))


def _warn(last: Node, inputs: Sequence[Any], output: Any) -> None:
    """Warn unless the hooks get the gradients of all inputs of the module, for all of its outputs."""
    outputs = cast("Sequence[Any]", output) if isinstance(output, tuple) else (output,)
    are_tensors = all(isinstance(value, Tensor) for value in outputs)
    same_node = are_tensors and all(value.made_by is None or value.made_by.node is last for value in outputs)
    edges = {value.edge() for value in inputs if isinstance(value, Tensor)}
    if not same_node or edges - {None} != set(last.next_edges) - {None}:
        said = "a legacy backward hook will not get the gradients of this module's inputs: use a full backward hook"
        warnings.warn(said, FutureWarning, stacklevel=5)


def _first(output: Any) -> Tensor:
    """Return the first tensor of an output; the others get no hooks."""
    while not isinstance(output, Tensor):
        values = cast("dict[str, Any]", output).values() if isinstance(output, dict) else ()
        output = next(value for value in values if isinstance(value, Tensor)) if values else output[0]
    return output
