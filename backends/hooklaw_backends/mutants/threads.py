"""Mutants that confuse the state of one thread with the state of all threads."""

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, Pairs, TensorHooks

RUN = threading.Thread.run


class BackwardRunsInOneWorkerThread(Mutant):
    """A CPU backward runs in another thread than its caller's."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        with ThreadPoolExecutor(max_workers=1) as worker:
            worker.submit(super().backward, root, gradient, **how).result()


class ConcurrentBackwardLosesAHookCall(TensorHooks):
    """The second call of a tensor hook is lost."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        calls: list[bool] = []

        def losing(grad: Any) -> Any:
            calls.append(True)
            return None if len(calls) == len("ab") else hook(grad)

        return losing


class ConcurrentBackwardMixesGradients(Mutant):
    """autograd.grad returns the gradients of the call before it."""

    last: tuple[Any, ...] | None = None

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        mine = super().grad(outputs, inputs, grad_outputs, **how)
        before, self.last = self.last, mine
        return before or mine


@contextmanager
def everywhere(enter: Callable[[], AbstractContextManager[Any]]) -> Generator[None]:
    """Enter a context here and in every thread that starts meanwhile."""

    def run(thread: threading.Thread) -> None:
        with enter():
            RUN(thread)

    threading.Thread.run = run  # type: ignore[method-assign]
    try:
        with enter():
            yield
    finally:
        threading.Thread.run = RUN  # type: ignore[method-assign]


class SavedTensorHooksReachOtherThreads(Mutant):
    """Saved-tensor hooks also apply in threads that start inside their context."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return everywhere(partial(super().saved_tensors_hooks, pack, unpack))


class SavedTensorHooksOnlyInTheMainThread(Mutant):
    """Saved-tensor hooks have no effect outside the main thread."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        in_main = threading.current_thread() is threading.main_thread()
        return super().saved_tensors_hooks(pack, unpack) if in_main else nullcontext()


class UnpackOnlyInThePackingThread(Pairs):
    """A backward in another thread uses the saved tensor without calling unpack."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        here = threading.get_ident()

        def choose(both: Any) -> Any:
            return unpack(both[0]) if threading.get_ident() == here else both[1]

        return lambda tensor: (pack(tensor), self.detach(tensor)), choose


class NoGradReachesOtherThreads(Mutant):
    """no_grad also applies in threads that start inside it."""

    def no_grad(self) -> AbstractContextManager[Any]:
        return everywhere(super().no_grad)


class InferenceModeReachesOtherThreads(Mutant):
    """inference_mode also applies in threads that start inside it."""

    def inference_mode(self) -> AbstractContextManager[Any]:
        return everywhere(super().inference_mode)


class HooksDisabledInEveryThread(Mutant):
    """disable_saved_tensors_hooks also applies in threads that start inside it."""

    def disable_saved_tensors_hooks(self, message: str) -> AbstractContextManager[Any]:
        return everywhere(partial(super().disable_saved_tensors_hooks, message))
