"""Mutants whose anomaly detection overlooks some passes, or ends too early."""

import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh


class _Detecting(Mutant):
    """A mutant that knows whether anomaly detection is on."""

    contexts = fresh(list[Any])

    @contextmanager
    def detect_anomaly(self, **how: bool) -> Generator[None]:
        with super().detect_anomaly(**how):
            self.contexts.append(how)
            try:
                yield
            finally:
                self.contexts.pop()

    def unchecked(self, run: Hook, *given: Any, **how: Any) -> Any:
        """Run a pass in which NaN is not checked."""
        with super().detect_anomaly(check_nan=False):
            return run(*given, **how)


class AnomaliesInAutogradGradUndetected(_Detecting):
    """Anomaly detection overlooks the NaN of a pass of autograd.grad."""

    def grad(self, *given: Any, **how: Any) -> Any:
        old = super().grad
        return self.unchecked(old, *given, **how) if self.contexts else old(*given, **how)


class AnomaliesOfGraphsRecordedBeforeUndetected(_Detecting):
    """Anomaly detection overlooks the NaN of a graph that was recorded outside its context."""

    outside = fresh(list[Any])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        result = super().call(fn, *tensors)
        if not self.contexts and self.is_tensor(result):
            self.outside.append(weakref.ref(result))
        return result

    def backward(self, root: Any, *given: Any, **how: Any) -> None:
        is_outside = self.contexts and any(reference() is root for reference in self.outside)
        old = super().backward
        return self.unchecked(old, root, *given, **how) if is_outside else old(root, *given, **how)


class AnomalyDetectionInsideItselfEndsBoth(Mutant):
    """Leaving a context of anomaly detection ends the one around it."""

    open = fresh(list[Any])

    @contextmanager
    def detect_anomaly(self, **how: bool) -> Generator[None]:
        context = super().detect_anomaly(**how)
        context.__enter__()
        self.open.append(context)
        try:
            yield
        finally:
            while self.open:
                self.open.pop().__exit__(None, None, None)
