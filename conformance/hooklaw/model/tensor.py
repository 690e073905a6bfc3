"""Tensor: data with a place in the graph. `hooklaw.model.ops` installs its operators."""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from hooklaw.model.errors import InferenceTensorError, NoGradientError, NotALeafError, ViewDetachedError
from hooklaw.model.flags import on
from hooklaw.model.hooks import Hook, Hooks, RemovableHandle
from hooklaw.model.modes import grad_mode, inferring, recording
from hooklaw.model.node import AccumulateGrad, Edge
from hooklaw.model.strided import Shape, Strided

UNRECORDED = "views-under-no-grad-require-grad"
Operator = ClassVar[Callable[..., "Tensor"]]
_making = threading.Lock()


def _no_node() -> None:
    return None


def _itself(base: "Tensor") -> "Tensor":
    return base


class Tensor:
    """A leaf that the user made, or an output of a Node."""

    __add__: Operator
    __radd__: Operator
    __sub__: Operator
    __rsub__: Operator
    __mul__: Operator
    __rmul__: Operator
    __neg__: Operator

    grad: "Tensor | None" = None
    retains_grad = False
    is_view = False
    """Whether it shares the data of another tensor."""
    base: "Tensor | None" = None
    """The tensor of which it is a view, and whose history it shares."""
    rebases = replayed = 0
    """`rebases` counts the changes of a base's history; `replayed` is the count at which a view's history was made."""
    fixed_by = ""
    """The flag with which a view, and tensors that share its data, must not be changed in place."""
    is_fixed = False
    """Whether it is an input or output of a module with backward hooks, which must not be changed in place."""
    is_detached = False
    """Whether it was detached from another tensor outside of inference mode."""
    _hooks_were_at: Hooks | None = None

    def __init__(self, data: Strided, *, requires_grad: bool = False, made_by: Edge | None = None) -> None:
        self.data = data
        if data.storage.for_inference is None:
            data.storage.for_inference = inferring()
        self.hooks, self.post_accumulate_hooks = Hooks(), Hooks()
        """The hooks of a leaf; those of any other tensor are kept by its Node."""
        self.accumulate: Callable[[], AccumulateGrad | None] = _no_node
        self.replay: Callable[[Tensor], Tensor] = _itself
        """Makes the view from its base."""
        self._is_leaf_with_grad = requires_grad
        self._made_by = made_by

    @property
    def shape(self) -> Shape:
        """Return the sizes."""
        return self.data.shape

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return self.data.dtype

    @property
    def made_by(self) -> Edge | None:
        """Return the Node that made the tensor; replay a view first if its base was changed in place."""
        if self.base is not None and self.replayed != self.base.changes():
            if on(self.fixed_by) and (self._made_by or self.base.requires_grad):
                raise RuntimeError("a view was used after a tensor that shares its data was changed in place")
            self.replayed = self.base.changes()
            with grad_mode(enabled=True):
                self.rebase(self.replay(self.base).made_by)
        return self._made_by

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to the tensor."""
        if on(UNRECORDED) and self.base is not None and self.base.requires_grad:
            return True
        return self._is_leaf_with_grad or self.made_by is not None

    @property
    def is_leaf(self) -> bool:
        """Whether no Node made the tensor."""
        return self.made_by is None

    def rebase(self, made_by: Edge | None, *, retained_first: bool = False) -> None:
        """Take on another history. Hooks stay with their Node; a retained gradient moves along.

        The order of the two moves matters only with flags.
        """
        before = self._made_by
        if retained_first:
            self._move_retained(before, made_by)
        self._made_by, self._hooks_were_at = made_by, None
        self.rebases += 1
        if not retained_first:
            self._move_retained(before, made_by)

    def _move_retained(self, before: Edge | None, made_by: Edge | None) -> None:
        if self.retains_grad and before and made_by:
            mixed_up = on("retained-gradients-are-mixed-up")
            moved = before.node.retained.pop(made_by.nr if mixed_up else before.nr, None)
            if moved is None:
                raise RuntimeError("INTERNAL ASSERT: a retained gradient is not where it should be")
            made_by.node.retained[made_by.nr] = moved

    def changes(self) -> int:
        """Return how often a view of the tensor would have been replayed."""
        return self.data.storage.version if on("views-leave-their-node") else self.rebases

    def edge(self) -> Edge | None:
        """Return the edge of the tensor's gradient: the Node that made it, or a leaf's AccumulateGrad."""
        made_by = self.made_by
        if made_by is None and self._is_leaf_with_grad:
            return Edge(self.accumulate_grad(), 0)
        return made_by

    def accumulate_grad(self) -> AccumulateGrad:
        """Return the leaf's AccumulateGrad; make a new one if none is alive."""
        with _making:
            node = self.accumulate()
            if node is None:
                node = AccumulateGrad(self)
                self.accumulate = weakref.ref(node)
            return node

    def detach(self) -> "Tensor":
        """Return a tensor with the same data, without history."""
        detached = Tensor(self.data)
        detached.is_detached = not inferring()
        return detached

    def detach_(self) -> None:
        """Drop the history, so that the tensor is a leaf that does not require grad."""
        if self.base is not None:
            raise ViewDetachedError("a view cannot be detached in place: use detach")
        self._is_leaf_with_grad = False
        if self.retains_grad and self._made_by and not on("a-detached-tensor-still-retains"):
            self._made_by.node.retained.pop(self._made_by.nr)
            self.retains_grad = False
        self.rebase(None)

    def requires_grad_(self) -> "Tensor":
        """Make a tensor without history a leaf that requires grad."""
        if self.data.storage.for_inference and not inferring():
            raise InferenceTensorError("an inference tensor cannot require grad outside of inference mode")
        if not self.requires_grad:
            self._is_leaf_with_grad, self.base = True, None
        return self

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Register a hook on the gradient of the tensor's current value."""
        has_gradient = self._is_leaf_with_grad or self._made_by is not None
        if self._hooks_were_at is None or not has_gradient or not on("hooks-on-a-view-join-the-first"):
            self._hooks_were_at = Hooks() if has_gradient else None
            node, nr = self.needed_edge()
            self._hooks_were_at = node.hooks_of(nr)
        return self._hooks_were_at.add(hook)

    def register_post_accumulate_grad_hook(self, hook: Hook) -> RemovableHandle:
        """Register a hook that runs after a leaf's .grad was updated; NotALeafError for a non-leaf."""
        node, _ = self.needed_edge()
        if not isinstance(node, AccumulateGrad):
            raise NotALeafError("a post-accumulate-grad hook can be registered on a leaf only")
        return node.leaf.post_accumulate_hooks.add(hook)

    def retain_grad(self) -> None:
        """Keep the gradient of a non-leaf in .grad."""
        if self.retains_grad:
            return
        node, nr = self.needed_edge()
        if not isinstance(node, AccumulateGrad):
            self.retains_grad = True
            node.retained[nr] = weakref.ref(self)

    def needed_edge(self) -> Edge:
        """Return the edge of the tensor's gradient; NoGradientError if it has none."""
        edge = self.edge()
        if edge is None and self.requires_grad:
            return Edge(self.accumulate_grad(), 0)
        if edge is None:
            raise NoGradientError("this tensor does not require grad, so it has no gradient")
        return edge


def edge_of(value: Any) -> Edge | None:
    """Return the edge of an operand's gradient, None for a number or a tensor that does not require grad."""
    return value.edge() if isinstance(value, Tensor) else None


def edges_of(values: Iterable[Any]) -> Sequence[Edge | None]:
    """Return the edges of the operands' gradients, or nothing if the operation must not be recorded."""
    if not recording():
        return ()
    given = list(values)
    edges = [edge_of(value) for value in given]
    if on(UNRECORDED) and any(isinstance(value, Tensor) and value.requires_grad for value in given):
        return edges
    return edges if any(edges) else ()
