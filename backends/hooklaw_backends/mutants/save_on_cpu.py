"""Mutants of save_on_cpu."""

from contextlib import AbstractContextManager
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class SaveOnCpuReadsBeforeTheCopy(Mutant):
    """With pinned memory a saved tensor is read before its data has arrived."""

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        return self.saved_tensors_hooks(self.detach, lambda kept: kept * 0 if pin_memory else kept)


class SaveOnCpuAlwaysCopies(Mutant):
    """A tensor that is on the CPU already is copied."""

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - that is the vice
        return self.saved_tensors_hooks(lambda tensor: self.clone(self.detach(tensor)), lambda kept: kept)
