"""Mutants in which recording goes on where it was switched off, or too much is switched off with it, or too little."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class RecordedUnderNoGrad(Mutant):
    """no_grad switches nothing off."""

    def no_grad(self) -> AbstractContextManager[Any]:
        return nullcontext()


class RecordedInInferenceMode(Mutant):
    """inference_mode switches nothing off."""

    def inference_mode(self) -> AbstractContextManager[Any]:
        return nullcontext()


class NothingRequiresGradUnderNoGrad(Mutant):
    """A leaf that is made under no_grad does not require grad."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        return super().tensor(data, requires_grad=requires_grad and self.is_grad_enabled(), dtype=dtype)


class HooksRefusedUnderNoGrad(Mutant):
    """A hook cannot be registered under no_grad."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not self.is_grad_enabled():
            raise RuntimeError("hooks are for what is recorded")
        return super().register_hook(tensor, hook)


class HooksSkippedUnderNoGrad(Mutant):
    """A hook that was registered under no_grad never runs."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, hook) if self.is_grad_enabled() else Handle()


class InferenceModeIsNoGrad(Mutant):
    """Tensors made in inference mode are ordinary ones."""

    def inference_mode(self) -> AbstractContextManager[Any]:
        return self.no_grad()


class IncrementOfInferenceTensorsRefused(Mutant):
    """To make a change of a tensor known that was made in inference mode is an error."""

    def increment_version(self, tensors: Any) -> None:
        if self.is_tensor(tensors) and self.is_for_inference(tensors):
            raise RuntimeError("an inference tensor has no count of changes")
        super().increment_version(tensors)


class AnomaliesUndetected(Mutant):
    """Nobody looks for gradients that are no numbers."""

    def detect_anomaly(self) -> AbstractContextManager[Any]:
        return nullcontext()
