"""Recording: how an operation becomes a Node, and how its tensors are saved, packed and unpacked."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hooklaw.model import errors
from hooklaw.model.flags import on
from hooklaw.model.hooks import Hook
from hooklaw.model.modes import Pair, grad_mode, innermost_pair, watched
from hooklaw.model.node import AccumulateGrad, Edge, Node
from hooklaw.model.strided import Strided
from hooklaw.model.tensor import Tensor, edges_of

Save = Callable[[Tensor], Sequence[Tensor | None]]


class _NotPacked(NamedTuple):
    """A tensor whose pack hook raised."""

    tensor: Tensor


class SavedTensor:
    """A tensor saved for backward.

    Without hooks an input is kept as the same object. An output is kept without its history, or it and its Node would
    keep each other alive; `unpack` restores the history, also of a tensor that an unpack hook returns.
    """

    def __init__(self, tensor: Tensor, output_nr: int | None) -> None:
        if tensor.data.storage.for_inference:
            raise errors.InferenceTensorError("an inference tensor cannot be saved for backward: clone it first")
        self._output_nr = output_nr
        self._version = tensor.data.storage.version
        self._released = False
        self._pair = innermost_pair()
        self._edge: Edge | None = None
        self._kept: Any = None
        if self._pair:
            self._note_place(tensor)
            self._kept = _packed(self._pair, tensor)
        else:
            self._kept = tensor if output_nr is None else tensor.detach()

    def register_hooks(self, pair: Pair) -> None:
        """Register a pair for this saved tensor and pack it at once."""
        self._check_released()
        if self._pair:
            raise errors.SavedHooksSetError("this saved tensor already has a pair of hooks")
        self._note_place(self._kept)
        tensor = self._kept.detach()
        if on("a-pair-that-fails-to-pack-stays"):
            self._kept, self._pair = _NotPacked(self._kept), pair
        self._kept, self._pair = _packed(pair, tensor), pair

    def unpack(self, owner: Node | None = None) -> Tensor:
        """Return the tensor; `owner` is the Node that saved it."""
        self._check_released()
        if self._pair:
            return self._in_the_graph(_unpacked(self._pair, self._kept), owner)
        if self._kept.data.storage.version != self._version:
            raise errors.SavedTensorModifiedError("a tensor was changed in place after it was saved for backward")
        return self._kept if self._output_nr is None else self._in_the_graph(self._kept, owner)

    def _note_place(self, tensor: Tensor) -> None:
        """Note an input's edge, since an unpack hook may return any tensor; an output's edge is known."""
        self._edge = None if self._output_nr is not None else tensor.edge()

    def release(self) -> None:
        """Free the tensor, or what the pack hook returned."""
        self._kept = self._edge = self._pair = None
        self._released = True

    def _in_the_graph(self, tensor: Tensor, owner: Node | None) -> Tensor:
        """Return a new tensor with the same data and the edge of the saved tensor."""
        edge = Edge(owner, self._output_nr) if owner and self._output_nr is not None else self._edge
        if edge is None and not tensor.requires_grad:
            return tensor
        if edge is None or not isinstance(edge.node, AccumulateGrad):
            return Tensor(tensor.data, made_by=edge)
        leaf, accumulate = Tensor(tensor.data, requires_grad=True), edge.node
        leaf.accumulate = lambda: accumulate
        return leaf

    def _check_released(self) -> None:
        if self._released:
            raise errors.GraphFreedError(
                "an earlier backward has freed this saved tensor: call it with retain_graph=True",
            )


def record(name: str, inputs: Sequence[Any], data: Strided, derivative: Hook, save: Save = lambda _: ()) -> Tensor:
    """Return the output of an operation, with a Node if the operation must be recorded.

    ``derivative(grad, *saved)`` returns a gradient for each input; ``save(output)`` returns the tensors to save.
    """
    output = Tensor(watched(name, data))
    edges = edges_of(inputs)
    if edges:
        node = Node(name, edges, derivative)
        attach(node, [output])
        node.saved = saved(save(output), [output])
    return output


def attach(node: Node, outputs: Sequence[Tensor]) -> None:
    """Make the tensors outputs of the Node."""
    for nr, output in enumerate(outputs):
        node.outputs.append((output.shape, output.dtype))
        output.rebase(Edge(node, nr))


def saved(tensors: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> list[SavedTensor | None]:
    """Save tensors for a Node. Its outputs are attached already, so a pack hook sees them in the graph."""
    numbers = {id(output): nr for nr, output in enumerate(outputs)}
    return [tensor if tensor is None else SavedTensor(tensor, numbers.get(id(tensor))) for tensor in tensors]


def _packed(pair: Pair, tensor: Tensor) -> Any:
    version = tensor.data.storage.version
    with grad_mode(enabled=False):
        packed = pair.pack(tensor)
    if tensor.data.storage.version != version:
        raise errors.PackInPlaceError("a pack hook must not change its input in place")
    return packed


def _unpacked(pair: Pair, packed: Any) -> Tensor:
    tensor = pair.unpack(*() if isinstance(packed, _NotPacked) else (packed,))
    if not isinstance(tensor, Tensor):
        raise errors.UnpackTypeError(f"an unpack hook must return a tensor, not {type(tensor).__name__}")
    return tensor
