"""Mutants of the engine's save_on_cpu that do what torch does."""

from contextlib import AbstractContextManager
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class SaveOnCpuCopiesToPinnedMemory(Mutant):
    """save_on_cpu with pin_memory=True copies a tensor that is already on the CPU."""

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:
        def copied(tensor: Any) -> Any:
            return self.clone(self.detach(tensor)) if pin_memory else self.detach(tensor)

        return self.saved_tensors_hooks(copied, lambda kept: kept)


class SaveOnCpuLeaks(Mutant):
    """Tensors saved under save_on_cpu are never freed."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - part of the verb
        def kept(tensor: Any) -> Any:
            self._kept.append(tensor)
            return tensor

        return self.saved_tensors_hooks(kept, lambda packed: packed)
