"""A framework whose tensors are lists, for scripts that are not executed."""

from importlib import import_module
from types import MappingProxyType

json = import_module("json")
decoder = import_module("json.decoder")


class Listed:
    """A framework whose tensors are lists, and an adapter with each form of a verb."""

    name = "listed"
    versions = MappingProxyType({"listed": "1"})
    errors = MappingProxyType({})

    def is_tensor(self, value):
        return isinstance(value, list)

    def tolist(self, tensor):
        return tensor.copy()

    def tensor(self, data, *, requires_grad=False, dtype="float32"):
        return Tensor(data, kind=dtype, grad=requires_grad)

    def sum(self, tensor):
        return tensor.sum()

    def call(self, fn, *tensors):
        return fn(*tensors)

    def register_hook(self, tensor, hook):
        handle = tensor.hooks
        handle.append(hook)
        return handle

    def expand(self, tensor, *shape):
        return spread(tensor, shape)

    def view(self, tensor, *shape):
        return tensor.view(*shape)

    def grad(self, root, **how):
        return root.grad(how.get("inputs"), **how)

    def grad_fn(self, tensor):
        return None if tensor.hooks else tensor.node

    def shape(self, tensor):
        return json.loads(decoder.scanstring(import_module("json.encoder").encode(tensor)))

    def backward(self, root, gradient=None, **how):
        root.backward(gradient, **how)


class Tensor(list):
    """What its scripts make."""


def spread(tensor, shape):
    """Return a tensor of a shape."""
    return Tensor([tensor] * shape[0])
