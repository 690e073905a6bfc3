"""Mutants whose grad modes end wrongly, or whose anomaly detection looks in the wrong places."""

import math
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.shared import CountsNoGrad, enter_for_good


@overriding("enable_grad", base=CountsNoGrad)
def enable_grad_undoes_one_no_grad(self: CountsNoGrad, old: Hook) -> Any:
    """enable_grad has no effect inside a no_grad that is inside another."""
    return old() if self.depth < 2 else nullcontext()  # noqa: PLR2004 - one no_grad and another


@overriding("no_grad")
@contextmanager
def leaving_no_grad_without_an_exception_turns_grad_mode_on(self: Mutant, old: Hook) -> Generator[None]:
    """Leaving no_grad turns grad mode on, even inside another no_grad, unless an exception leaves it."""
    with old():
        yield
    enter_for_good(self.enable_grad())


@overriding("enable_grad")
@contextmanager
def leaving_enable_grad_turns_grad_mode_off(self: Mutant, old: Hook) -> Generator[None]:
    """Leaving enable_grad turns grad mode off, even if it was on before."""
    try:
        with old():
            yield
    finally:
        enter_for_good(self.no_grad())


@overriding("inference_mode")
@contextmanager
def leaving_inference_mode_turns_grad_mode_on(self: Mutant, old: Hook, *, mode: bool = True) -> Generator[None]:
    """Leaving inference mode turns grad mode on, even inside no_grad."""
    with old(mode):
        yield
    enter_for_good(self.enable_grad())


@overriding("inference_mode")
@contextmanager
def leaving_inference_mode_turns_grad_mode_off(self: Mutant, old: Hook, *, mode: bool = True) -> Generator[None]:
    """An exception that leaves inference mode turns grad mode off."""
    try:
        with old(mode):
            yield
    except Exception:
        enter_for_good(self.no_grad())
        raise


class _Detecting(Mutant):
    """A mutant that knows whether anomaly detection is on."""

    is_detecting = False

    @contextmanager
    def detect_anomaly(self, *, check_nan: bool = True) -> Generator[None]:
        outer, self.is_detecting = self.is_detecting, True
        try:
            with self.detection() if check_nan else super().detect_anomaly(check_nan=False):
                yield
        finally:
            self.is_detecting = outer

    def detection(self) -> Any:
        return super().detect_anomaly()

    def reset(self) -> None:
        super().reset()
        self.is_detecting = False

    def checked(self, result: Any) -> Any:
        """Return what a user's function returned; a NaN in it is an error while anomaly detection is on."""
        if self.is_detecting and self.is_tensor(result) and "nan" in str(self.tolist(result)):
            raise self.errors.get(ErrorKind.NOT_A_NUMBER, (RuntimeError,))[0]("a gradient is NaN")
        return result


class AnomaliesOfNodesUndetected(_Detecting):
    """Anomaly detection looks only at what tensor hooks return."""

    def detection(self) -> Any:
        return nullcontext()

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, lambda grad: self.checked(hook(grad)))


class AnomaliesOfOperationsUndetected(_Detecting):
    """Anomaly detection looks only at what the backward of a custom Function returns."""

    def detection(self) -> Any:
        return nullcontext()

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        return super().custom_function(forward, lambda ctx, *grads: self.checked(backward(ctx, *grads)), **options)


class AnomaliesBesideNumbersUndetected(_Detecting):
    """Anomaly detection reports a gradient only if all its elements are NaN."""

    def detection(self) -> Any:
        return nullcontext()

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        leaves = list(self.leaves_of(root))
        super().backward(root, gradient, **how)
        for grad in filter(self.is_tensor, map(self.grad_of, leaves if self.is_detecting else ())):
            numbers = self.sum(self.mapped(grad, lambda element: float(not math.isnan(element))))
            if self.tolist(numbers) == 0:
                self.checked(grad)


class AnomaliesThatReachNoLeafUndetected(_Detecting):
    """Anomaly detection looks only at the gradients with which a pass ends."""

    def detection(self) -> Any:
        return nullcontext()

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        leaves = list(self.leaves_of(root))
        super().backward(root, gradient, **how)
        for leaf in leaves:
            self.checked(self.grad_of(leaf))

    def grad(self, *given: Any, **how: Any) -> tuple[Any, ...]:
        return tuple(map(self.checked, super().grad(*given, **how)))


class HooksSkippedUnderAnomalyDetection(_Detecting):
    """Tensor hooks do not run under anomaly detection."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, lambda grad: None if self.is_detecting else hook(grad))


@overriding("backward")
def nan_is_always_an_error(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward that leaves NaN in a .grad is an error even without anomaly detection."""
    leaves = list(self.leaves_of(root))
    old(root, *given, **how)
    grads = [grad for grad in map(self.grad_of, leaves) if grad is not None]
    if "nan" in str([self.tolist(grad) for grad in grads]):
        raise self.errors.get(ErrorKind.NOT_A_NUMBER, (RuntimeError,))[0]("a gradient is NaN")


@overriding("call")
def inference_tensors_refused_by_every_recorded_operation(self: Mutant, old: Hook, fn: Hook, *tensors: Any) -> Any:
    """An inference tensor is an error in every operation outside of inference mode, saved or not."""
    used = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or ()]
    if any(self.is_tensor(value) and self.is_for_inference(value) for value in used):
        raise self.errors.get(ErrorKind.INFERENCE_TENSOR, (RuntimeError,))[0]("an inference tensor was used")
    return old(fn, *tensors)


class _Lasting(Mutant):
    """A mutant whose contexts last until the next rule if an exception leaves them."""

    def reset(self) -> None:
        while self.kept:
            self.kept.pop().__exit__(None, None, None)
        super().reset()


@contextmanager
def _lasting(self: Mutant, context: AbstractContextManager[Any]) -> Generator[None]:
    context.__enter__()
    try:
        yield
    except BaseException:
        self.kept.append(context)
        raise
    context.__exit__(None, None, None)


@contextmanager
def _then_off(self: Mutant, old: Hook, *, mode: bool, is_off: bool) -> Generator[None]:
    """Enter inference mode; afterwards it is off until the end of the mode around it, if `is_off`."""
    before = len(self.kept)
    with old(mode):
        try:
            yield
        finally:
            while len(self.kept) > before:
                self.kept.pop().__exit__(None, None, None)
    if is_off:
        self.kept.append(old(False))  # noqa: FBT003 - torch's argument
        self.kept[-1].__enter__()


@overriding("inference_mode", base=_Lasting)
def leaving_inference_mode_off_leaves_it_off(self: _Lasting, old: Hook, *, mode: bool = True) -> Any:
    """Leaving inference_mode(False) does not turn the inference mode around it on again."""
    return _then_off(self, old, mode=mode, is_off=not mode and self.is_for_inference(self.tensor([0.0])))


@overriding("detect_anomaly", base=_Lasting)
def anomaly_detection_lasts_after_an_exception(self: _Lasting, old: Hook, **how: bool) -> Any:
    """Anomaly detection stays on if an exception leaves its context."""
    return _lasting(self, old(**how))
