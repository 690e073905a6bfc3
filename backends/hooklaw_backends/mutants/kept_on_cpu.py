"""Mutants of save_on_cpu that keep a saved tensor with another value, dtype or shape, or only for one backward."""

from contextlib import AbstractContextManager
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class _KeptOnCpu(Mutant):
    """A mutant that keeps something else of a tensor saved under save_on_cpu."""

    def kept(self, tensor: Any) -> Any:
        return self.detach(tensor)

    def retrieved(self, kept: Any) -> Any:
        return kept

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - part of the verb
        return self.saved_tensors_hooks(self.kept, self.retrieved)


class SaveOnCpuRoundsFloat64(_KeptOnCpu):
    """save_on_cpu keeps float64 tensors as float32."""

    def kept(self, tensor: Any) -> Any:
        kept = self.detach(tensor)
        return self.cast(self.cast(kept, "float32"), "float64") if self.dtype(tensor) == "float64" else kept


class SaveOnCpuTurnsIntegersIntoFloats(_KeptOnCpu):
    """save_on_cpu gives integers back as float32."""

    def kept(self, tensor: Any) -> Any:
        kept = self.detach(tensor)
        return self.cast(kept, "float32") if "int" in self.dtype(tensor) else kept


class SaveOnCpuReadsViewsAsTheirBase(_KeptOnCpu):
    """save_on_cpu gives a view back as its base."""

    def kept(self, tensor: Any) -> Any:
        base = self.base_of(tensor)
        return self.detach(tensor if base is None else base)


class SaveOnCpuUnexpands(_KeptOnCpu):
    """save_on_cpu gives an expanded tensor back with its expanded dimensions at size 1."""

    def kept(self, tensor: Any) -> Any:
        strides = self.stride(tensor)
        shape = tuple(size if step else 1 for size, step in zip(self.shape(tensor), strides, strict=True))
        return self.strided(self.detach(tensor), shape, strides)


class SaveOnCpuTurnsScalarsIntoVectors(_KeptOnCpu):
    """save_on_cpu gives a 0-d tensor back as a tensor of one element."""

    def kept(self, tensor: Any) -> Any:
        kept = self.detach(tensor)
        return kept if self.shape(tensor) else self.view(kept, 1)


class SaveOnCpuDropsEmptyDimensions(_KeptOnCpu):
    """save_on_cpu gives an empty tensor back with a single dimension."""

    def kept(self, tensor: Any) -> Any:
        kept = self.detach(tensor)
        return self.view(kept, 0) if 0 in self.shape(tensor) else kept


class SaveOnCpuGivesItsDataAway(_KeptOnCpu):
    """What save_on_cpu keeps can be retrieved once; after that it is zero."""

    def kept(self, tensor: Any) -> Any:
        return [self.detach(tensor)]

    def retrieved(self, kept: Any) -> Any:
        tensor = kept[0]
        kept[0] = tensor * 0
        return tensor
