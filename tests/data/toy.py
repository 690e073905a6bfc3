"""A backend in plain Python, quick to start: vectors, a few operations, hooks on tensors."""

# ruff: noqa: RUF012 - the attributes are constants

import math

from hooklaw.errors import NotRunError


class Tensor:
    """Numbers with a shape, which know how to hand a gradient to what they were made of."""

    def __init__(self, data, sources=(), *, requires_grad=False, shape=None):
        self.data, self.sources, self.hooks, self.grad = data, sources, {}, None
        self.shape = (len(data),) if shape is None else shape
        self.requires_grad = requires_grad or any(source.requires_grad for source, _ in sources)

    def made(self, data, *sources):
        """Make a tensor of this shape."""
        return Tensor(data, sources, shape=self.shape)

    def __mul__(self, other):
        """Multiply by a tensor or a number."""
        if not isinstance(other, Tensor):
            return self.made([one * other for one in self.data], (self, lambda grad: [one * other for one in grad]))
        return self.made(_times(self.data, other.data), (self, _by(other.data)), (other, _by(self.data)))

    __rmul__ = __mul__

    def __add__(self, other):
        """Add a tensor or a number."""
        if not isinstance(other, Tensor):
            return self.made([one + other for one in self.data], (self, list))
        return self.made(_plus(self.data, other.data), (self, list), (other, list))

    def __sub__(self, other):
        """Subtract a tensor or a number."""
        return self + other * -1

    def receive(self, grad):
        """Run the hooks on a gradient and return what they make of it."""
        for hook in list(self.hooks.values()):
            new = hook(self.made(grad))
            grad = grad if new is None else new.data
        if not self.sources:
            self.grad = self.made(grad if self.grad is None else _plus(grad, self.grad.data))
        return grad


def _backward(root, grad):
    grads = {id(root): grad}
    for tensor in reversed(list(_in_order(root, set()))):
        grad = tensor.receive(grads[id(tensor)])
        for source, back in tensor.sources:
            if source.requires_grad:
                more = back(grad)
                grads[id(source)] = _plus(more, grads[id(source)]) if id(source) in grads else more


def _in_order(tensor, seen):
    if id(tensor) in seen or not tensor.requires_grad:
        return
    seen.add(id(tensor))
    for source, _ in tensor.sources:
        yield from _in_order(source, seen)
    yield tensor


def _plus(these, those):
    return [this + that for this, that in zip(these, those, strict=True)]


def _times(these, those):
    return [this * that for this, that in zip(these, those, strict=True)]


def _by(factors):
    return lambda grad: _times(grad, factors)


def _flat(data):
    return [one for part in data for one in _flat(part)] if isinstance(data, list | tuple) else [data]


def _shape(data):
    return (len(data), *(_shape(data[0]) if data else ())) if isinstance(data, list | tuple) else ()


def _nested(data, shape):
    if not shape:
        return data[0]
    size = len(data) // shape[0] if shape[0] else 0
    return [_nested(data[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]


class Handle:
    """Removes a hook."""

    def __init__(self, hooks, key):
        self.hooks, self.key = hooks, key

    def remove(self):
        """Forget the hook."""
        self.hooks.pop(self.key, None)


class Toy:
    """The adapter; tests derive their broken ones from it."""

    name = "toy"
    capabilities = frozenset({"tensor-hooks"})
    lacks = {"nodes": "a toy has none"}
    errors = {"no-gradient": (ValueError,)}
    versions = {"toy": "1.0.0+plain"}
    notes = {}
    expectations = None

    def tensor(self, data, *, requires_grad=False, dtype="float32"):
        return Tensor(_flat(data), requires_grad=requires_grad, shape=_shape(data))

    def is_tensor(self, value):
        return isinstance(value, Tensor)

    def tolist(self, tensor):
        return _nested(tensor.data, tensor.shape)

    def shape(self, tensor):
        return tensor.shape

    def dtype(self, tensor):
        return "float32"

    def device(self, tensor):
        return "toy"

    def requires_grad(self, tensor):
        return tensor.requires_grad

    def is_leaf(self, tensor):
        return not tensor.sources

    def grad_of(self, tensor):
        return tensor.grad

    def set_grad(self, tensor, value):
        tensor.grad = value

    def detach(self, tensor):
        return tensor.made(tensor.data)

    def clone(self, tensor):
        return tensor * 1.0

    def sum(self, tensor):
        return Tensor([sum(tensor.data)], [(tensor, lambda grad: grad * len(tensor.data))], shape=())

    def exp(self, tensor):
        out = [math.exp(one) for one in tensor.data]
        return tensor.made(out, (tensor, _by(out)))

    def call(self, fn, *tensors):
        return fn(*tensors)

    def backward(self, root, gradient=None, *, retain_graph=None, create_graph=False, inputs=None):
        _backward(root, [1.0] if gradient is None else gradient.data)

    def register_hook(self, tensor, hook):
        if not tensor.requires_grad:
            raise ValueError("the tensor requires no grad")
        key = object()
        tensor.hooks[key] = hook
        return Handle(tensor.hooks, key)


def backend(argument=""):
    """Make the toy; `toy:backend:absent` plays the machine that lacks the hardware."""
    if argument == "absent":
        raise NotRunError("no toy box on this machine")
    return Toy()
