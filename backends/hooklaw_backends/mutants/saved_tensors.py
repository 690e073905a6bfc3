"""Mutants whose saved tensors are other objects than they should be, or live too short or too long."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, Pairs


class SavedInputIsAFreshAlias(Mutant):
    """Without hooks a saved input is read back as another object."""

    def saved_tensors(self, node: Any) -> list[Any]:
        return [self.detach(tensor) for tensor in super().saved_tensors(node)]


class SavedOutputIsCopied(Mutant):
    """A saved tensor is read back as a copy."""

    def saved_tensors(self, node: Any) -> list[Any]:
        return [self.clone(tensor) for tensor in super().saved_tensors(node)]


class SavedOutputIsItself(Mutant):
    """An output that its own operation saved is kept, and read back, as the very same object."""

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
    """Under hooks too a saved tensor is read back as the object that was saved."""

    def __init__(self) -> None:
        super().__init__()
        self._packed: dict[int, Any] = {}

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: (self._packed.setdefault(self.data_ptr(tensor), tensor), pack(tensor))[1], unpack

    def saved_tensors(self, node: Any) -> list[Any]:
        return [self._packed.get(self.data_ptr(tensor), tensor) for tensor in super().saved_tensors(node)]


class SavedTensorsCopiedUnderHooks(Pairs):
    """Under hooks a saved tensor is copied."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, lambda packed: self.clone(unpack(packed))


class PackedTensorKeepsTheSavedOne(Pairs):
    """What was packed keeps the tensor alive that it was made of."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: (pack(tensor), tensor), lambda both: unpack(both[0])


class IdentityPackMakesNoCycle(Pairs):
    """A pack hook that returns its input is taken to have returned a detached one."""

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
