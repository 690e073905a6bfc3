"""Mutants whose anomaly detection overlooks some passes, or ends too early."""

import weakref
from collections.abc import Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Maker, Mutant, altering, fresh, overriding
from hooklaw_backends.mutants.shared import once


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


class AnomaliesInPassesThatCreateAGraphUndetected(_Detecting):
    """Anomaly detection overlooks the NaN of a pass of autograd.grad that creates a graph."""

    def grad(self, *given: Any, **how: Any) -> Any:
        old = super().grad
        is_overlooked = self.contexts and how.get("create_graph")
        return self.unchecked(old, *given, **how) if is_overlooked else old(*given, **how)


class AnomaliesOfGradientsRecordedBeforeUndetected(_Detecting):
    """Anomaly detection overlooks the NaN of the backward of a gradient that was computed outside its context."""

    is_outside = False

    def reset(self) -> None:
        super().reset()
        self.is_outside = False

    def backward(self, *given: Any, **how: Any) -> None:
        self.overlooking(super().backward, *given, **how)

    def grad(self, *given: Any, **how: Any) -> Any:
        result = self.overlooking(super().grad, *given, **how)
        if how.get("create_graph"):
            self.is_outside = not self.contexts
        return result

    def overlooking(self, run: Hook, *given: Any, **how: Any) -> Any:
        """Run a pass in which NaN is not checked if the last gradient was computed outside."""
        is_overlooked = self.contexts and self.is_outside
        return self.unchecked(run, *given, **how) if is_overlooked else run(*given, **how)


class AnomaliesOfOperationsInDoubleBackwardUndetected(_Detecting):
    """In the backward of a gradient anomaly detection looks only at what custom Functions return."""

    has_gradient = False
    is_overlooking = False

    def reset(self) -> None:
        super().reset()
        self.has_gradient = self.is_overlooking = False

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def checked(*given: Any) -> Any:
            result = backward(*given)
            if self.is_overlooking and self.is_tensor(result) and "nan" in str(self.tolist(result)):
                raise self.errors.get(ErrorKind.NOT_A_NUMBER, (RuntimeError,))[0]("a gradient is NaN")
            return result

        return super().custom_function(forward, checked, **options)

    def backward(self, *given: Any, **how: Any) -> None:
        self.overlooking(super().backward, *given, **how)

    def grad(self, *given: Any, **how: Any) -> Any:
        result = self.overlooking(super().grad, *given, **how)
        self.has_gradient |= bool(how.get("create_graph"))
        return result

    def overlooking(self, run: Hook, *given: Any, **how: Any) -> Any:
        """Run a pass in which NaN of operations is not checked if a gradient with a graph was computed before."""
        if not (self.contexts and self.has_gradient):
            return run(*given, **how)
        self.is_overlooking = True
        try:
            return self.unchecked(run, *given, **how)
        finally:
            self.is_overlooking = False


def overlooked(verb: str) -> Maker:
    """Make a mutant whose anomaly detection overlooks the NaN of a pass of which ``(given, how)`` holds."""

    def make(holds: Hook) -> type[Mutant]:
        @wraps(holds)
        def run(self: _Detecting, old: Hook, *given: Any, **how: Any) -> Any:
            is_overlooked = self.contexts and holds(given, how)
            return self.unchecked(old, *given, **how) if is_overlooked else old(*given, **how)

        return overriding(verb, base=_Detecting)(run)

    return make


@overriding("backward", base=_Detecting)
def anomalies_in_a_pass_inside_another_undetected(self: _Detecting, old: Hook, *given: Any, **how: Any) -> None:
    """Anomaly detection overlooks the NaN of a backward that runs during another."""
    is_inside = bool(self.kept)
    self.kept.append(None)
    try:
        if is_inside and self.contexts:
            self.unchecked(old, *given, **how)
        else:
            old(*given, **how)
    finally:
        self.kept.pop()


@overlooked("backward_from_all")
def anomalies_from_several_roots_undetected(*_: Any) -> bool:
    """Anomaly detection overlooks the NaN of a backward from several roots."""
    return True


@overlooked("backward_from_edge")
def anomalies_from_edges_undetected(*_: Any) -> bool:
    """Anomaly detection overlooks the NaN of a backward from a gradient edge."""
    return True


@overlooked("backward")
def anomalies_in_passes_with_inputs_undetected(_: Any, how: dict[str, Any]) -> bool:
    """Anomaly detection overlooks the NaN of a backward with inputs."""
    return how.get("inputs") is not None


@overlooked("backward")
def anomalies_in_passes_that_retain_undetected(_: Any, how: dict[str, Any]) -> Any:
    """Anomaly detection overlooks the NaN of a backward that retains the graph."""
    return how.get("retain_graph")


@overlooked("backward")
def anomalies_in_a_backward_that_creates_a_graph_undetected(_: Any, how: dict[str, Any]) -> Any:
    """Anomaly detection overlooks the NaN of a backward that creates a graph."""
    return how.get("create_graph")


@overlooked("grad")
def anomalies_of_several_outputs_undetected(given: Any, _: Any) -> bool:
    """Anomaly detection overlooks the NaN of autograd.grad of several outputs."""
    return isinstance(given[0], (list, tuple))


@overlooked("grad")
def anomalies_for_several_inputs_undetected(given: Any, _: Any) -> bool:
    """Anomaly detection overlooks the NaN of autograd.grad for several inputs."""
    return len(given[1]) > 1


@altering("register_hook", base=_Detecting)
def hooks_of_leaves_skipped_under_anomaly_detection(self: _Detecting, tensor: Any, hook: Hook) -> Hook:
    """The tensor hooks of a leaf do not run under anomaly detection."""
    is_leaf = self.is_leaf(tensor)
    return lambda grad: None if self.contexts and is_leaf else hook(grad)


@altering("register_hook", base=_Detecting)
def later_hooks_skipped_under_anomaly_detection(self: _Detecting, tensor: Any, hook: Hook) -> Hook:
    """The tensor hooks of a tensor after its first do not run under anomaly detection."""
    is_later = bool(self.hooks_of(tensor))
    return lambda grad: None if self.contexts and is_later else hook(grad)


@altering("register_hook", base=_Detecting)
def hooks_run_once_under_anomaly_detection(self: _Detecting, _: Any, hook: Hook) -> Hook:
    """A tensor hook runs once under anomaly detection, and not in later passes."""
    first = once(hook)
    return lambda grad: first(grad) if self.contexts else hook(grad)


class CheckNanIgnoredInAutogradGrad(_Detecting):
    """autograd.grad ignores check_nan=False."""

    def grad(self, *given: Any, **how: Any) -> Any:
        if not self.contexts:
            return super().grad(*given, **how)
        with super().detect_anomaly():
            return super().grad(*given, **how)


class CheckNanIgnoredInCustomFunctions(_Detecting):
    """The NaN of a custom Function is an error under anomaly detection, whatever check_nan is."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def checked(*given: Any) -> Any:
            result = backward(*given)
            if self.contexts and self.is_tensor(result) and "nan" in str(self.tolist(result)):
                raise self.errors.get(ErrorKind.NOT_A_NUMBER, (RuntimeError,))[0]("a gradient is NaN")
            return result

        return super().custom_function(forward, checked, **options)
