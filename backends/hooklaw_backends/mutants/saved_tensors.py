"""Mutants whose saved tensors have the wrong identity or lifetime."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, Pairs


class SavedInputIsAFreshAlias(Mutant):
    """Without hooks a saved input comes back as another object."""

    def saved_tensors(self, node: Any) -> list[Any]:
        return [self.detach(tensor) for tensor in super().saved_tensors(node)]


class SavedOutputIsCopied(Mutant):
    """Reading a saved tensor returns a copy."""

    def saved_tensors(self, node: Any) -> list[Any]:
        return [self.clone(tensor) for tensor in super().saved_tensors(node)]


class SavedOutputIsItself(Mutant):
    """A saved output comes back as the very same object instead of a new one."""

    def __init__(self) -> None:
        super().__init__()
        self._outputs: dict[Any, Any] = {}

    def exp(self, tensor: Any) -> Any:
        output = super().exp(tensor)
        self._outputs[self.grad_fn(output)] = output
        return output

    def saved_tensors(self, node: Any) -> list[Any]:
        read = super().saved_tensors(node)
        return [self._outputs[node]] if node in self._outputs else read


class SavedInputIsItselfUnderHooks(Pairs):
    """With saved-tensor hooks a saved tensor comes back as the original object."""

    def __init__(self) -> None:
        super().__init__()
        self._packed: dict[int, Any] = {}

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: (self._packed.setdefault(self.data_ptr(tensor), tensor), pack(tensor))[1], unpack

    def saved_tensors(self, node: Any) -> list[Any]:
        return [self._packed.get(self.data_ptr(tensor), tensor) for tensor in super().saved_tensors(node)]


class SavedTensorsCopiedUnderHooks(Pairs):
    """With saved-tensor hooks a saved tensor comes back as a copy of what unpack returned."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, lambda packed: self.clone(unpack(packed))


class PackedTensorKeepsTheSavedOne(Pairs):
    """A packed tensor keeps the original tensor alive."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: (pack(tensor), tensor), lambda both: unpack(both[0])


class IdentityPackMakesNoCycle(Pairs):
    """If pack returns its input, a detached tensor is kept instead."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def detaching(tensor: Any) -> Any:
            packed = pack(tensor)
            return self.detach(tensor) if packed is tensor else packed

        return detaching, unpack


class PackedObjectsOutliveTheGraph(Pairs):
    """Packed objects are never released."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def keep(tensor: Any) -> Any:
            self._kept.append(pack(tensor))
            return self._kept[-1]

        return keep, unpack
