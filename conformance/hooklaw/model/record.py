"""Recording: how an operation becomes a Node, and what it saves, by itself or through a pair of hooks."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hooklaw.model import errors
from hooklaw.model.flags import on
from hooklaw.model.hooks import Hook
from hooklaw.model.modes import Pair, grad_mode, innermost_pair
from hooklaw.model.node import AccumulateGrad, Edge, Node
from hooklaw.model.strided import Strided
from hooklaw.model.tensor import Tensor, edges_of

Save = Callable[[Tensor], Sequence[Tensor | None]]


class _NotPacked(NamedTuple):
    """A tensor that a pair has failed to pack."""

    tensor: Tensor


class SavedTensor:
    """A tensor put aside by the Node that needs it.

    Without hooks an input is kept as the very tensor it is. An output is kept without its history, or it and its Node
    would keep each other alive; reading it gives that back, as it does to whatever an unpack hook returns.
    """

    def __init__(self, tensor: Tensor, output_nr: int | None) -> None:
        if tensor.data.storage.for_inference:
            raise errors.InferenceTensorError("what was made in inference mode cannot be saved: clone it first")
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
        """Give this saved tensor a pair of its own, which packs it at once."""
        self._check_released()
        if self._pair:
            raise errors.SavedHooksSetError("this saved tensor has its pair of hooks already")
        self._note_place(self._kept)
        tensor = self._kept.detach()
        if on("a-pair-that-fails-to-pack-stays"):
            self._kept, self._pair = _NotPacked(self._kept), pair
        self._kept, self._pair = _packed(pair, tensor), pair

    def unpack(self, owner: Node | None = None) -> Tensor:
        """Read the tensor, for the Node that saved it, if one did."""
        self._check_released()
        if self._pair:
            return self._in_the_graph(_unpacked(self._pair, self._kept), owner)
        if self._kept.data.storage.version != self._version:
            raise errors.SavedTensorModifiedError("a tensor was changed in place after it was saved for backward")
        return self._kept if self._output_nr is None else self._in_the_graph(self._kept, owner)

    def _note_place(self, tensor: Tensor) -> None:
        """Note where an input was in the graph, since a pair returns any tensor; an output's place is known."""
        self._edge = None if self._output_nr is not None else tensor.edge()

    def release(self) -> None:
        """Let go of the tensor, or of what pack returned."""
        self._kept = self._edge = self._pair = None
        self._released = True

    def _in_the_graph(self, tensor: Tensor, owner: Node | None) -> Tensor:
        """Return a new tensor on the same data, in the place in the graph of the one that was saved."""
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
                "an earlier backward has freed this saved tensor: call that one with retain_graph=True",
            )


def record(name: str, inputs: Sequence[Any], data: Strided, derivative: Hook, save: Save = lambda _: ()) -> Tensor:
    """Return the output of an operation, with a Node if the operation is to be recorded.

    ``derivative(grad, *saved)`` gives a gradient for each input; `save` is told the output and says what to save.
    """
    output = Tensor(data)
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
    """Save tensors for a Node that has its outputs already, so that a pack hook sees them in the graph."""
    numbers = {id(output): nr for nr, output in enumerate(outputs)}
    return [None if one is None else SavedTensor(one, numbers.get(id(one))) for one in tensors]


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
