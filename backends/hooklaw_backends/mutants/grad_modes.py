"""Mutants whose grad modes switch off too much or too little."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class RecordedUnderNoGrad(Mutant):
    """no_grad has no effect."""

    def no_grad(self) -> AbstractContextManager[Any]:
        return nullcontext()


class RecordedInInferenceMode(Mutant):
    """inference_mode has no effect."""

    def inference_mode(self) -> AbstractContextManager[Any]:
        return nullcontext()


class NothingRequiresGradUnderNoGrad(Mutant):
    """A leaf created under no_grad with requires_grad=True does not require grad."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        return super().tensor(data, requires_grad=requires_grad and self.is_grad_enabled(), dtype=dtype)


class HooksRefusedUnderNoGrad(Mutant):
    """Registering a tensor hook under no_grad is an error."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not self.is_grad_enabled():
            raise RuntimeError("hooks cannot be registered under no_grad")
        return super().register_hook(tensor, hook)


class HooksSkippedUnderNoGrad(Mutant):
    """A tensor hook registered under no_grad never runs."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, hook) if self.is_grad_enabled() else Handle()


class InferenceModeIsNoGrad(Mutant):
    """Tensors created in inference mode are ordinary tensors."""

    def inference_mode(self) -> AbstractContextManager[Any]:
        return self.no_grad()


class IncrementOfInferenceTensorsRefused(Mutant):
    """increment_version raises for a tensor created in inference mode."""

    def increment_version(self, tensors: Any) -> None:
        if self.is_tensor(tensors) and self.is_for_inference(tensors):
            raise RuntimeError("an inference tensor has no version counter")
        super().increment_version(tensors)


class AnomaliesUndetected(Mutant):
    """Anomaly detection does not report NaN gradients."""

    def detect_anomaly(self) -> AbstractContextManager[Any]:
        return nullcontext()
