"""Views, and in-place operations, which change the history of a tensor and of its views."""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from hooklaw.model import ops
from hooklaw.model.errors import InferenceTensorError, LeafInPlaceError, ModuleInPlaceError
from hooklaw.model.flags import on
from hooklaw.model.modes import inferring, recording
from hooklaw.model.node import Edge, Node
from hooklaw.model.record import attach, record
from hooklaw.model.strided import Shape, Strided, contiguous, filled
from hooklaw.model.tensor import UNRECORDED, Tensor, edges_of


def view(x: Tensor, shape: Shape) -> Tensor:
    """View with another shape."""
    before = x.shape
    output = record("ViewBackward0", (x,), _reshaped(x.data, shape), lambda grad: (_reshape(grad, before),))
    return _is_view(output, x, lambda x: view(x, shape))


def transpose(x: Tensor, first: int, second: int) -> Tensor:
    """View with two dimensions swapped."""
    order = list(range(len(x.shape)))
    order[first], order[second] = order[second], order[first]
    data = x.data.view(tuple(x.shape[at] for at in order), tuple(x.data.strides[at] for at in order))
    output = record("TransposeBackward0", (x,), data, lambda grad: (transpose(grad, first, second),))
    return _is_view(output, x, lambda x: transpose(x, first, second))


def expand(x: Tensor, shape: Shape) -> Tensor:
    """View with dimensions of size 1 repeated."""
    return _is_view(ops.repeated(x, shape), x, lambda x: expand(x, shape))


def split(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """Split along the first dimension; all parts are outputs of one Node."""
    starts = range(0, x.shape[0], size)
    shapes = [(min(size, x.shape[0] - start), *x.shape[1:]) for start in starts]
    row = x.data.strides[0]
    parts = [
        Tensor(x.data.view(shape, x.data.strides, x.data.offset + start * row))
        for start, shape in zip(starts, shapes, strict=True)
    ]
    edges = edges_of([x])
    if edges:
        dtype = x.dtype

        def derivative(*grads: Tensor | None) -> tuple[Tensor]:
            pairs = zip(grads, shapes, strict=True)
            return (joined([_zeros(shape, dtype) if grad is None else grad for grad, shape in pairs]),)

        attach(Node("SplitBackward0", edges, derivative), parts)
    made = tuple(_is_view(part, x, lambda x, nr=nr: split(x, size)[nr]) for nr, part in enumerate(parts))
    for part in made:
        part.fixed_by = part.fixed_by or "split-parts-stay-as-they-are"
    return made


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors along the first dimension; all but the last have the same length."""
    size = parts[0].shape[0]
    shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
    values = [value for part in parts for value in part.data.values()]
    return record("CatBackward0", parts, filled(values, shape, parts[0].dtype), lambda grad: split(grad, size))


def in_place(tensor: Tensor, operation: Callable[[Tensor], Tensor], operand: Any = None) -> Tensor:
    """Write the result of an operation, perhaps with an operand, into the tensor, which takes on its history.

    The operation is recorded on the old value, at its old edge, where the hooks stay.
    """
    check_change(tensor, recorded=bool(edges_of((tensor, operand))))
    values = filled(tensor.data.values(), tensor.shape, tensor.dtype, tensor.data.layout())
    before = Tensor(values, made_by=old_place(tensor))
    after = operation(before)
    if after.shape != before.shape:
        raise RuntimeError(f"a result of shape {after.shape} does not fit into a tensor of shape {before.shape}")
    _check_memory(tensor, operand)
    write(tensor, after.data.values())
    if after.made_by is not None:
        take_on(tensor, after.made_by)
    return tensor


def check_change(tensor: Tensor, *, recorded: bool) -> None:
    """Raise if the tensor must not be changed in place."""
    if tensor.is_fixed or (tensor.base and tensor.base.is_fixed):
        raise ModuleInPlaceError("an input or output of a module with backward hooks cannot be changed in place")
    if recording() and tensor.requires_grad and (tensor.is_leaf or (tensor.base and tensor.base.is_leaf)):
        raise LeafInPlaceError("a leaf that requires grad cannot be changed in place while grad mode is on")
    if on(tensor.fixed_by) and recorded:
        raise RuntimeError("this view must not be changed in place")


def write(tensor: Tensor, values: Iterable[Any]) -> None:
    """Change the data of a tensor; InferenceTensorError for an inference tensor outside of inference mode."""
    refused = tensor.data.storage.for_inference and not inferring()
    if on("detached-inference-tensors-may-be-changed") and tensor.is_detached:
        refused = False
    if not refused or on("refused-changes-of-inference-tensors-are-made"):
        tensor.data.write(values)
    if refused:
        raise InferenceTensorError("an inference tensor cannot be changed outside of inference mode: clone it first")


def take_on(tensor: Tensor, made_by: Edge) -> None:
    """Give a tensor that was changed in place its new history; that of a view becomes part of its base's history."""
    if tensor.base is None:
        tensor.rebase(made_by)
    else:
        _copy_into_base(tensor, tensor.base, made_by)


def _check_memory(tensor: Tensor, operand: Any) -> None:
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.data.strides, tensor.shape, strict=True)):
        raise RuntimeError("an expanded tensor cannot be changed in place: clone it first")
    if isinstance(operand, Tensor) and tensor.data.overlaps(operand.data):
        raise RuntimeError("an in-place operand must not overlap the tensor: clone one of them first")


def old_place(tensor: Tensor) -> Edge | None:
    """Return the edge of the tensor's value before an in-place change."""
    if not recording():
        return None
    edge = tensor.edge()
    return edge if tensor.base is None or not on("views-leave-their-node") else tensor.replay(tensor.base).made_by


def _copy_into_base(part: Tensor, base: Tensor, made_by: Edge) -> None:
    """Record that some elements of the base come from the changed view; other views are replayed when read."""
    numbers = {place: number for number, place in enumerate(base.data.places())}
    places, shape = [numbers[place] for place in part.data.places()], part.shape
    node = Node(
        "CopySlices",
        (base.edge(), made_by),
        lambda grad: (ops.without(grad, places), ops.gather(grad, places, shape)),
    )
    node.outputs = [(base.shape, base.dtype)]
    node.frees = "copies-into-a-base-are-freed"
    base.rebase(Edge(node, 0), retained_first=True)
    part.replayed = -1  # always replay: a Function may have changed it and read it since
    part.edge()


def _is_view(output: Tensor, x: Tensor, again: Callable[[Tensor], Tensor]) -> Tensor:
    """Note how the view is made from its base; without grad mode it is detached."""
    output.is_view = True
    if recording() or on(UNRECORDED):
        earlier = x.replay
        output.base = base = x.base or x
        output.replay = lambda base: again(earlier(base))
        output.replayed = base.changes()
        output.fixed_by = x.fixed_by if recording() else UNRECORDED
    return output


def _reshape(x: Tensor, shape: Shape) -> Tensor:
    return view(x if x.data.is_contiguous() else ops.clone(x, contiguous(x.shape)), shape)


def _reshaped(data: Strided, shape: Shape) -> Strided:
    step = data.strides[-1] if data.strides else 1
    if prod(shape) == data.size and data.strides == _spaced(data.shape, step):
        return data.view(shape, _spaced(shape, step))
    left = [pair for pair in zip(data.shape, data.strides, strict=True) if pair[0] != 1]
    if [size for size, _ in left] != [size for size in shape if size != 1]:
        raise RuntimeError(f"data of shape {data.shape} and strides {data.strides} cannot be viewed as shape {shape}")
    strides = iter(stride for _, stride in left)
    return data.view(shape, tuple(0 if size == 1 else next(strides) for size in shape))


def _spaced(shape: Shape, step: int) -> Shape:
    """Return the strides of elements that follow one another at equal distances."""
    return tuple(step * stride for stride in contiguous(shape))


def _zeros(shape: Shape, dtype: str) -> Tensor:
    return ops.repeated(Tensor(filled([0], (), dtype)), shape)
