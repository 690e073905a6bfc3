"""Mutants that confuse the state of one thread with the state of all threads."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, altering, overriding, pairs

START = threading.Thread.start


@overriding("backward")
def backward_runs_in_one_worker_thread(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """A CPU backward runs in another thread than its caller's."""
    with ThreadPoolExecutor(max_workers=1) as worker:
        worker.submit(old, *given, **how).result()


@altering("register_hook")
def concurrent_backward_loses_a_hook_call(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """The second call of a tensor hook is lost."""
    calls: list[bool] = []

    def losing(grad: Any) -> Any:
        calls.append(True)
        return None if len(calls) == len("ab") else hook(grad)

    return losing


@overriding("grad")
def concurrent_backward_mixes_gradients(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad returns the gradients of the call before it."""
    self.kept.append(old(*given, **how))  # at once: of two calls that race, one must see the other
    return self.kept[-2:][0]


@contextmanager
def everywhere(enter: Callable[[], AbstractContextManager[Any]]) -> Generator[None]:
    """Enter a context here and in every thread that starts meanwhile."""

    def start(thread: threading.Thread) -> None:
        own = thread.run  # of the thread's class, which may have its own

        def run() -> None:
            with enter():
                own()

        thread.run = run  # type: ignore[method-assign]
        START(thread)

    threading.Thread.start = start  # type: ignore[method-assign]
    try:
        with enter():
            yield
    finally:
        threading.Thread.start = START  # type: ignore[method-assign]


@overriding("saved_tensors_hooks")
def saved_tensor_hooks_reach_other_threads(self: Mutant, old: Hook, *pair: Hook) -> Any:
    """Saved-tensor hooks also apply in threads that start inside their context."""
    return everywhere(partial(old, *pair))


@overriding("saved_tensors_hooks")
def saved_tensor_hooks_only_in_the_main_thread(self: Mutant, old: Hook, *pair: Hook) -> Any:
    """Saved-tensor hooks have no effect outside the main thread."""
    return old(*pair) if threading.current_thread() is threading.main_thread() else nullcontext()


@pairs("saved_tensors_hooks")
def unpack_only_in_the_packing_thread(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """A backward in another thread uses the saved tensor without calling unpack."""
    here = threading.get_ident()
    return (
        lambda tensor: (pack(tensor), self.detach(tensor)),
        lambda both: unpack(both[0]) if threading.get_ident() == here else both[1],
    )


@overriding("no_grad")
def no_grad_reaches_other_threads(self: Mutant, old: Hook) -> Any:
    """no_grad also applies in threads that start inside it."""
    return everywhere(old)


@overriding("inference_mode")
def inference_mode_reaches_other_threads(self: Mutant, old: Hook) -> Any:
    """inference_mode also applies in threads that start inside it."""
    return everywhere(old)


@overriding("disable_saved_tensors_hooks")
def hooks_disabled_in_every_thread(self: Mutant, old: Hook, message: str) -> Any:
    """disable_saved_tensors_hooks also applies in threads that start inside it."""
    return everywhere(partial(old, message))
