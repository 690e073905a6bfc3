"""Mutants of save_on_cpu."""

from contextlib import AbstractContextManager
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class SaveOnCpuReadsBeforeTheCopy(Mutant):
    """save_on_cpu with pin_memory=True reads a saved tensor before its data has arrived."""

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        return self.saved_tensors_hooks(self.detach, lambda kept: kept * 0 if pin_memory else kept)


class SaveOnCpuAlwaysCopies(Mutant):
    """save_on_cpu copies a tensor that is already on the CPU."""

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - that is the vice
        return self.saved_tensors_hooks(lambda tensor: self.clone(self.detach(tensor)), lambda kept: kept)
