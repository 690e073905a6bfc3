"""Mutants that confuse the state of one thread with the state of all threads."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, altering, calling, fresh, overriding, pairs

START = threading.Thread.start


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


@pairs("saved_tensors_hooks")
def unpack_lost_once_the_packing_thread_has_ended(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """If the thread that packed a tensor has ended, backward uses the saved tensor without calling unpack."""
    here = threading.current_thread()
    return (
        lambda tensor: (pack(tensor), self.detach(tensor)),
        lambda both: unpack(both[0]) if here.is_alive() else both[1],
    )


class NoGradReachesEarlierThreads(Mutant):
    """no_grad also applies in threads that were there before it was entered."""

    entered_by = fresh(list[int])

    @contextmanager
    def no_grad(self) -> Generator[None]:
        here = threading.get_ident()
        with super().no_grad():
            self.entered_by.append(here)
            try:
                yield
            finally:
                self.entered_by.remove(here)

    def call(self, fn: Hook, *tensors: Any) -> Any:
        here = threading.get_ident()
        with super().no_grad() if any(thread != here for thread in self.entered_by) else nullcontext():
            return super().call(fn, *tensors)


class BackwardRunsInOneWorkerThread(Mutant):
    """A backward runs in another thread than its caller's."""

    def backward(self, *given: Any, **how: Any) -> None:
        with ThreadPoolExecutor(max_workers=1) as worker:
            worker.submit(super().backward, *given, **how).result()


def _in_a_worker_thread(self: Mutant, hook: Hook) -> Hook:
    """Return a hook that runs in another thread than that of the backward's caller, in the same grad mode."""

    def run(*given: Any) -> Any:
        mode = self.enable_grad if self.is_grad_enabled() else self.no_grad

        def there() -> Any:
            with mode():
                return hook(*given)

        with ThreadPoolExecutor(max_workers=1) as worker:
            return worker.submit(there).result()

    return run


@altering("register_hook")
def hooks_of_non_leaves_run_in_a_worker_thread(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """The tensor hooks of a non-leaf run in another thread than that of the backward's caller."""
    return hook if self.is_leaf(tensor) else _in_a_worker_thread(self, hook)


@altering("register_post_accumulate_grad_hook")
def post_accumulate_hooks_run_in_a_worker_thread(self: Mutant, _tensor: Any, hook: Hook) -> Hook:
    """Post-accumulate-grad hooks run in another thread than that of the backward's caller."""
    return _in_a_worker_thread(self, hook)


@altering("node_register_hook")
def node_hooks_run_in_a_worker_thread(self: Mutant, _node: Any, hook: Hook) -> Hook:
    """The post-hooks of a Node run in another thread than that of the backward's caller."""
    return _in_a_worker_thread(self, hook)


@altering("node_register_prehook")
def node_pre_hooks_run_in_a_worker_thread(self: Mutant, _node: Any, hook: Hook) -> Hook:
    """The pre-hooks of a Node run in another thread than that of the backward's caller."""
    return _in_a_worker_thread(self, hook)


@overriding("custom_function")
def custom_functions_share_a_context(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """The backward of a custom Function gets the ctx of the last forward, if another thread ran it."""
    last: list[tuple[int, Any]] = []

    def run(ctx: Any, *inputs: Any) -> Any:
        last[:] = [(threading.get_ident(), ctx)]
        return forward(ctx, *inputs)

    def back(ctx: Any, *grads: Any) -> Any:
        thread, latest = last[0]
        return backward(ctx if thread == threading.get_ident() else latest, *grads)

    return old(run, back, **options)


@altering("register_hook")
def tensor_hooks_of_other_threads_run_too(self: Mutant, _tensor: Any, hook: Hook) -> Hook:
    """A tensor hook is followed by the last one that another thread registered."""
    here = threading.get_ident()
    self.kept.append((here, hook))

    def run(grad: Any) -> Any:
        others = [other for thread, other in self.kept if thread != here]
        result = hook(grad)
        return others[-1](grad if result is None else result) if others else result

    return run


@calling("custom_function")
def a_function_mixes_the_gradients_of_threads(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """If several threads run backward through a custom Function, each gets the gradient that came first."""
    self.kept.append((ctx, grads, threading.get_ident()))
    first, thread = next((given, thread) for of, given, thread in self.kept if of is ctx)
    return backward(ctx, *(grads if thread == threading.get_ident() else first))


class InferenceModeReachesRunningThreads(Mutant):
    """inference_mode also applies in threads that were running when it was entered."""

    @contextmanager
    def inference_mode(self, **mode: bool) -> Generator[None]:
        entry = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
        with super().inference_mode(**mode):
            self.kept.append(entry)
            try:
                yield
            finally:
                self.kept.remove(entry)

    def call(self, fn: Hook, *tensors: Any) -> Any:
        reached = any(threading.get_ident() in entry for entry in self.kept)
        with super().inference_mode() if reached else nullcontext():
            return super().call(fn, *tensors)


class SavedTensorsHooksReachRunningThreads(Mutant):
    """A pair of saved-tensor hooks is also used in threads that were running when its context was entered."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        threads = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
        entry = (threads, pack, unpack)
        with super().saved_tensors_hooks(pack, unpack):
            self.kept.append(entry)
            try:
                yield
            finally:
                self.kept.remove(entry)

    def call(self, fn: Hook, *tensors: Any) -> Any:
        reached = [pair for threads, *pair in self.kept if threading.get_ident() in threads]
        with super().saved_tensors_hooks(*reached[-1]) if reached else nullcontext():
            return super().call(fn, *tensors)


@altering("register_hook")
def hooks_of_non_leaves_mix_the_gradients_of_threads(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A hook of a non-leaf gets the first gradient that such a hook got in another thread, if there was one."""
    if self.is_leaf(tensor):
        return hook

    def run(grad: Any) -> Any:
        if not self.is_tensor(grad):
            return hook(grad)
        self.kept.append((threading.get_ident(), self.detach(grad) * 1))
        others = [seen for thread, seen in self.kept if thread != threading.get_ident()]
        return hook(others[0] if others and self.shape(others[0]) == self.shape(grad) else grad)

    return run
