"""Adapters over the engine that are wrong in one way each: what `hooklaw check-backend` must name."""

# ruff: noqa: RUF012, D101 - the names of the classes say what is wrong

from hooklaw import Capability, ErrorKind
from hooklaw.model.adapter import Reference


class Adapter(Reference):
    """The engine's own adapter; each class below changes one thing."""

    what = ""
    """The verb or attribute that the check must name."""


class ErrorWithoutATuple(Adapter):
    what = "errors"
    errors = {ErrorKind.GRAPH_FREED: RuntimeError}


class ErrorsSwapped(Adapter):
    what = "errors"
    errors = {
        **Reference.errors,
        ErrorKind.GRAPH_FREED: Reference.errors[ErrorKind.NO_GRADIENT],
        ErrorKind.NO_GRADIENT: Reference.errors[ErrorKind.GRAPH_FREED],
    }


class ErrorKindForgotten(Adapter):
    what = "errors"
    errors = {kind: types for kind, types in Reference.errors.items() if kind != ErrorKind.MULTI_GRAD_MODE}


class ErrorOfTheAdapterItself(Adapter):
    what = "errors"

    def backward(self, root, gradient=None, **how):
        if not root.requires_grad:
            return {}["no gradient"]
        return super().backward(root, gradient, **how)


class VersionIsANumber(Adapter):
    what = "versions"
    versions = {"mine": 1.0}


class NameIsNone(Adapter):
    what = "name"

    def __init__(self):
        super().__init__()
        self.name = None


class CapabilitiesInAList(Adapter):
    what = "capabilities"
    capabilities = [Capability.TENSOR_HOOKS]


class VerbMissing(Adapter):
    what = "saved_tensors_hooks"
    saved_tensors_hooks = None


class BackwardWithoutKeywords(Adapter):
    what = "backward"

    def backward(self, root, gradient=None):
        super().backward(root, gradient)


class TensorWithoutDtype(Adapter):
    what = "tensor"

    def tensor(self, data, *, requires_grad=False):
        return super().tensor(data, requires_grad=requires_grad)


class EverythingIsATensor(Adapter):
    what = "is_tensor"

    def is_tensor(self, value):
        return True


class RoundsValues(Adapter):
    what = "tolist"

    def tolist(self, tensor):
        def rounded(value):
            return [*map(rounded, value)] if isinstance(value, list) else round(value, 3)

        return rounded(super().tolist(tensor))


class ScalarInAList(Adapter):
    what = "tolist"

    def tolist(self, tensor):
        values = super().tolist(tensor)
        return values if isinstance(values, list) else [values]


class ShapeIsAList(Adapter):
    what = "shape"

    def shape(self, tensor):
        return list(tensor.shape)


class DtypeIsAnObject(Adapter):
    what = "dtype"

    def dtype(self, tensor):
        return object()


class DtypeIgnored(Adapter):
    what = "dtype"

    def tensor(self, data, *, requires_grad=False, dtype="float32"):
        return super().tensor(data, requires_grad=requires_grad)


class DeviceIsAnObject(Adapter):
    what = "device"

    def device(self, tensor):
        return object()


class EverythingIsALeaf(Adapter):
    what = "is_leaf"

    def is_leaf(self, tensor):
        return True


class DetachKeepsHistory(Adapter):
    what = "requires_grad"

    def detach(self, tensor):
        return self.clone(tensor)


class SetGradDoesNothing(Adapter):
    what = "grad_of"

    def set_grad(self, tensor, value):
        pass


class SetGradTakesTensorsOnly(Adapter):
    what = "set_grad"

    def set_grad(self, tensor, value):
        tensor.grad = super().clone(value)


class CallReturnsNothing(Adapter):
    what = "call"

    def call(self, fn, *tensors):
        fn(*tensors)


class BackwardReturnsTheRoot(Adapter):
    what = "backward"

    def backward(self, root, gradient=None, **how):
        super().backward(root, gradient, **how)
        return root


class RootGradientDropped(Adapter):
    what = "tolist"

    def backward(self, root, gradient=None, **how):
        super().backward(root, gradient and self.tensor([1.0] * len(self.tolist(gradient))), **how)


class GradReturnsAList(Adapter):
    what = "grad"

    def grad(self, *given, **how):
        return list(super().grad(*given, **how))


class ViewCopies(Adapter):
    what = "view"

    def view(self, tensor, *shape):
        return super().view(self.clone(tensor), *shape)


class InPlaceDoesNot(Adapter):
    what = "mul_"

    def mul_(self, tensor, factor):
        return tensor * factor


class NoHandle(Adapter):
    what = "register_hook"

    def register_hook(self, tensor, hook):
        super().register_hook(tensor, hook)


class HookIsGivenNumbers(Adapter):
    what = "register_hook"

    def register_hook(self, tensor, hook):
        return super().register_hook(tensor, lambda grad: hook(self.tolist(grad)))


class GradModeIsNotReset(Adapter):
    what = "is_grad_enabled"

    def no_grad(self):
        made = super().no_grad()
        return type("Left", (), {"__enter__": lambda _: made.__enter__(), "__exit__": lambda *_: None})()


class StridesInAList(Adapter):
    what = "stride"

    def stride(self, tensor):
        return list(tensor.data.strides)


class SplitCounts(Adapter):
    what = "tolist"

    def split(self, tensor, size):
        return super().split(tensor, 1)


class SavesText(Adapter):
    what = "save"

    def save(self, tensor):
        return super().save(tensor).decode()


class PackResultUnwrapped(Adapter):
    what = "saved_tensors_hooks"

    def saved_tensors_hooks(self, pack, unpack):
        return super().saved_tensors_hooks(lambda tensor: list(pack(tensor)), unpack)


class ModuleIsNotCallable(Adapter):
    what = "module"

    def module(self, parameters, forward):
        return object()


WRONG = {
    made.__name__: made
    for made in list(globals().values())
    if isinstance(made, type) and issubclass(made, Adapter) and made is not Adapter
}
