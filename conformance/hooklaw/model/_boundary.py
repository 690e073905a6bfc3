"""The boundary of a module call: two identity Nodes around forward, which call the module's backward hooks."""

import warnings
from collections.abc import Sequence
from typing import Any, cast

from hooklaw.model.errors import HookCountError, HookTypeError, ModuleHookError
from hooklaw.model.flags import on
from hooklaw.model.function import with_zeros
from hooklaw.model.hooks import Gradients, Hook
from hooklaw.model.modes import recording, running_pass
from hooklaw.model.node import Node
from hooklaw.model.record import attach
from hooklaw.model.tensor import Tensor

Values = tuple[Any, ...]


class BoundaryNode(Node):
    """Passes gradients on unchanged, with zeros for missing ones."""

    computes_all = True

    def execute(self, grads: Gradients, needed: Sequence[bool]) -> Gradients:  # noqa: ARG002 - it computes all of them
        """Return the gradients that it received."""
        return with_zeros(self, grads)


class Boundary:
    """The backward hooks of one call of a module, and the gradients they are given."""

    def __init__(self, module: Any, pre_hooks: Sequence[Hook], hooks: Sequence[Hook]) -> None:
        self.module, self.pre_hooks, self.hooks = module, pre_hooks, hooks
        self.inputs, self.outputs = _Side(), _Side()
        self._kept: dict[object, Any] = {}

    def enter(self, args: Values) -> Values:
        """Return the arguments for forward."""
        return self.inputs.through_node(args, self._at_inputs) if self.hooks or self.pre_hooks else args

    def leave(self, output: Any) -> Any:
        """Return the output for the caller."""
        if not (self.hooks or self.pre_hooks):
            return output
        if not isinstance(output, Tensor | tuple):
            said = f"backward hooks are called for a module that returns tensors, not {type(output).__name__}"
            warnings.warn(said, stacklevel=5)
        outputs = cast("Values", output) if isinstance(output, tuple) else (output,)
        outputs = self.outputs.through_node(outputs, self._at_outputs)
        return outputs if isinstance(output, tuple) else outputs[0]

    def _at_outputs(self, _: Gradients, grads: Gradients) -> Gradients | None:
        """Call the pre-hooks; the gradients they leave go on into the module, and later to the hooks."""
        memory = self._memory()
        memory[self] = self.outputs.spread(grads)
        for hook in self.pre_hooks:
            result = hook(self.module, memory.get(self))
            if isinstance(result, Tensor) and not on("backward-pre-hooks-return-no-tensor"):
                result = (result,)
            if result is not None:
                memory[self] = _checked(result, self.outputs.size)
        grad_outputs = memory.get(self)
        if not self.inputs.has_node:
            self._without_inputs(memory)
        return grad_outputs and self.outputs.picked(grad_outputs)

    def _without_inputs(self, memory: dict[object, Any]) -> None:
        """Call the hooks at once, since no gradient of an input will be computed."""
        warnings.warn("backward hooks are called although no input of their module requires grad", stacklevel=2)
        nothing = self.inputs.spread(())
        for hook in self.hooks:
            result = hook(self.module, nothing, memory.get(self))
            if isinstance(result, Tensor) or (result is not None and result != (None,) * len(cast("Values", result))):
                raise ModuleHookError("a backward hook cannot replace gradients of inputs that do not require grad")
        memory.pop(self, None)

    def _at_inputs(self, results: Gradients, _: Gradients) -> Gradients | None:
        """Call the hooks, unless the gradients did not come through the outputs."""
        memory = self._memory()
        if self not in memory:
            return None
        grad_inputs = self.inputs.spread(results)
        for hook in self.hooks:
            result = hook(self.module, grad_inputs, memory.get(self))
            grad_inputs = grad_inputs if result is None else _checked(result, self.inputs.size)
        memory.pop(self, None)
        return self.inputs.picked(grad_inputs)

    def _memory(self) -> dict[object, Any]:
        """Return the dict in which gradients of the outputs wait for those of the inputs; each pass has its own."""
        return self._kept if on("passes-share-the-gradients-of-a-module") else running_pass().memory


class _Side:
    """The inputs or the outputs of a call, and which of them are tensors."""

    def __init__(self) -> None:
        self.size = 0
        self.places: list[int] = []
        self.has_node = False

    def through_node(self, values: Values, hook: Hook) -> Values:
        """Pass all tensors through a Node with this hook, if any of them requires grad and operations are recorded."""
        self.size = len(values)
        self.places = [nr for nr, tensor in enumerate(values) if isinstance(tensor, Tensor)]
        edges = [values[nr].edge() for nr in self.places] if recording() else []
        self.has_node = any(edges)
        if not self.has_node:
            return values
        node, after = BoundaryNode("BackwardHookFunctionBackward", edges, tuple), list(values)
        node.post_hooks.add(hook)
        made = [values[nr].detach() for nr in self.places]
        attach(node, made)
        for nr, tensor, edge in zip(self.places, made, edges, strict=True):
            after[nr], tensor.is_fixed = tensor, edge is not None
            if edge is None:
                tensor.rebase(None)
        return tuple(after) if type(values) is tuple else type(values)(*after)

    def spread(self, grads: Gradients) -> Gradients:
        """Return one gradient for each value, None for a value that is not a tensor."""
        at = dict(zip(self.places, grads, strict=False))
        return tuple(at.get(nr) for nr in range(self.size))

    def picked(self, grads: Gradients) -> Gradients:
        """Return only the gradients of tensors."""
        return tuple(grads[nr] for nr in self.places)


def _checked(result: Any, size: int) -> Gradients:
    if isinstance(result, Tensor) and result.shape:
        raise HookCountError("a backward hook of a module must return a tuple or None; a tensor is read as its rows")
    if not isinstance(result, tuple | list):
        raise HookTypeError(f"a backward hook of a module must return a tuple or None, not {type(result).__name__}")
    if len(given := cast("Sequence[Any]", result)) != size:
        raise HookCountError(f"a backward hook of a module returned {len(given)} gradients for {size}")
    return tuple(given)
