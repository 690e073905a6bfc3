"""Mutants that take inference mode for another one, or look for nothing where they should."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class InferenceModeIsNoGrad(Mutant):
    """Tensors made in inference mode are ordinary ones."""

    def inference_mode(self) -> AbstractContextManager[Any]:
        return self.no_grad()


class IncrementOfInferenceTensorsRefused(Mutant):
    """To make a change of a tensor known that was made in inference mode is an error."""

    def increment_version(self, tensors: Any) -> None:
        if getattr(tensors, "is_inference", bool)():
            raise RuntimeError("an inference tensor has no count of changes")
        super().increment_version(tensors)


class AnomaliesUndetected(Mutant):
    """Nobody looks for gradients that are no numbers."""

    def detect_anomaly(self) -> AbstractContextManager[Any]:
        return nullcontext()
