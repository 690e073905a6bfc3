"""Functional: frameworks in which a gradient is what a function returns; the backend itself keeps leaves and .grad."""

from collections.abc import Mapping, Sequence
from typing import Any

from hooklaw import Capability, ErrorKind, TorchLike

KEPT = "kept by the backend, since the framework has no such thing"
CAPABILITIES = frozenset(
    {
        Capability.AUTOGRAD_GRAD,
        Capability.BROADCASTING,
        Capability.RETAIN_GRAPH,
        Capability.SEED_GRADIENT,
        Capability.SIN_COS,
    }
)


class Functional(TorchLike):
    """The verbs that such a framework shares; a subclass says what a leaf is, and takes gradients.

    The backend checks nothing that the framework does not check.
    """

    capabilities = CAPABILITIES
    lacks: Mapping[Capability, str] = {
        Capability.GRAPH_FREEING: "there is no graph to free: a gradient is computed as often as it is asked for",
        Capability.MISUSE_ERRORS: "the gradient of an input that was not used is zero, and any output is a root",
        Capability.TENSOR_HOOKS: "there are no hooks",
    }
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]] = {}
    notes: Mapping[str, str] = dict.fromkeys(("requires_grad", "is_leaf", "grad_of", "set_grad", "backward"), KEPT)

    def __init__(self) -> None:
        self.leaves: dict[Any, Any] = {}
        """The gradient of each leaf, None at first, by what `key` returns."""

    def reset(self) -> None:
        """Forget the leaves of the rule before."""
        self.leaves.clear()

    def key(self, tensor: Any) -> Any:
        """Return what stands for the tensor in a graph."""
        raise NotImplementedError

    def gradients(self, output: Any, seed: Any, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """Return the gradient of an output with respect to each of the keys that it depends on."""
        raise NotImplementedError

    def is_leaf(self, tensor: Any) -> bool:
        return self.key(tensor) in self.leaves or not self.requires_grad(tensor)

    def grad_of(self, tensor: Any) -> Any:
        return self.leaves.get(self.key(tensor))

    def set_grad(self, tensor: Any, value: Any) -> None:
        self.leaves[self.key(tensor)] = value

    def clone(self, tensor: Any) -> Any:
        return tensor * 1

    def backward(self, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **_: Any) -> None:
        if inputs is not None:
            raise TypeError("the backend does not declare that backward accepts inputs")
        for key, found in self.gradients(root, gradient, [*self.leaves]).items():
            if self.leaves[key] is None:
                self.leaves[key] = found * 0
            self.leaves[key] += found

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **_: Any) -> tuple[Any, ...]:
        roots = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        seeds = [None] * len(roots) if grad_outputs is None else grad_outputs
        keys = [self.key(tensor) for tensor in inputs]
        total: dict[Any, Any] = {}
        for root, seed in zip(roots, seeds, strict=False):
            for key, found in self.gradients(root, seed, keys).items():
                total[key] = total[key] + found if key in total else found
        return tuple(total.get(key) for key in keys)
