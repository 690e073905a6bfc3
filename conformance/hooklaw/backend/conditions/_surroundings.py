"""Conditions that change what is around a rule: its thread, another pass, contexts, onlookers, repetition."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from threading import Event, Thread
from typing import Any

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.conditions._condition import Body, Clears, Condition, Wrapper
from hooklaw.backend.protocol import Backend

TIMES = 3


class Retained(Wrapper):
    """Passes that say nothing of retain_graph retain the graph."""

    def backward(self, root: Any, gradient: Any = None, *, retain_graph: bool | None = None, **how: Any) -> None:
        """Run backward."""
        self.inner.backward(root, gradient, retain_graph=retain_graph is not False, **how)

    def grad(
        self, outputs: Any, inputs: Sequence[Any], *seeds: Any, retain_graph: bool | None = None, **how: Any
    ) -> Any:
        """Return gradients."""
        return self.inner.grad(outputs, inputs, *seeds, retain_graph=retain_graph is not False, **how)


class Hooked(Wrapper):
    """A hook that returns None is on every leaf that requires grad, before the rule sees it."""

    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        """Make a leaf, with the hook if it requires grad."""
        made = self.inner.tensor(data, requires_grad=requires_grad, dtype=dtype)
        if requires_grad:
            self.inner.register_hook(made, _look_on)
        return made


def _look_on(_grad: Any) -> None:
    return None


def _identity(value: Any) -> Any:
    return value


def _inside(context: Callable[[Any], AbstractContextManager[Any]]) -> Callable[[Backend, Clears, Body], None]:
    """Return how a rule runs inside a context."""

    def around(backend: Backend, _: Clears, body: Body) -> None:
        with context(backend):
            body()

    return around


def _again(_: Backend, trace: Clears, body: Body) -> None:
    for _time in range(TIMES - 1):
        body()
        trace.clear()
    body()


class _Kept:
    """Runs a body where its exception would be lost or changed, and raises it afterwards."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._error: BaseException | None = None
        self.ran = False

    def __call__(self) -> None:
        self.ran = True
        try:
            self._body()
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._error = error

    def end(self) -> None:
        if self._error:
            raise self._error
        if not self.ran:
            raise RuntimeError("the rule never ran: the hook around it was not called")


def _in_a_thread(backend: Backend, _: Clears, body: Body) -> None:
    """Run the rule in a new thread, while another thread is inside contexts that concern itself alone."""
    entered, done = Event(), Event()

    def neighbour() -> None:
        with ExitStack() as stack:
            for context in _of_the_neighbour(backend):
                stack.enter_context(context)
            entered.set()
            done.wait()

    kept = _Kept(body)
    threads = [Thread(target=neighbour), Thread(target=kept)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    threads[1].join()
    done.set()
    threads[0].join()
    kept.end()


def _of_the_neighbour(backend: Any) -> list[AbstractContextManager[Any]]:
    """Return contexts that would break a rule if they were not their thread's own."""
    can = backend.capabilities
    contexts: list[AbstractContextManager[Any]] = []
    if Capability.SAVED_TENSOR_HOOKS in can:
        contexts.append(backend.saved_tensors_hooks(lambda _: None, lambda _: backend.tensor([FOREIGN])))
    if Capability.GRAD_MODE in can:
        contexts.append(backend.no_grad())
    return contexts


FOREIGN = 77.0
"""What the neighbour's unpack hook returns, and no rule has asked for."""


def _in_a_pass(backend: Any, _: Clears, body: Body) -> None:
    """Run the rule in a hook of another backward, with grad mode on as rules expect it."""
    kept = _Kept(body)

    def hook(_grad: Any) -> None:
        with backend.enable_grad():
            kept()

    outer = backend.tensor([2.0], requires_grad=True)
    backend.register_hook(outer, hook)
    backend.backward(backend.sum(outer * outer))
    kept.end()


SURROUNDINGS = (
    Condition(
        "thread",
        "The rule runs in a thread of its own, beside another one.",
        (Capability.THREADS,),
        around=_in_a_thread,
    ),
    Condition(
        "inside-pass",
        "The rule runs inside a hook of another backward.",
        (Capability.TENSOR_HOOKS, Capability.GRAD_MODE),
        around=_in_a_pass,
    ),
    Condition("retained", "Passes that say nothing of retain_graph retain it.", (Capability.RETAIN_GRAPH,), Retained),
    Condition("hooked", "A hook that returns None is on every leaf.", (Capability.TENSOR_HOOKS,), Hooked),
    Condition(
        "packed",
        "Saved-tensor hooks that change nothing are active.",
        (Capability.SAVED_TENSOR_HOOKS,),
        around=_inside(lambda backend: backend.saved_tensors_hooks(_identity, _identity)),
    ),
    Condition(
        "anomaly",
        "Anomaly detection is on.",
        (Capability.ANOMALY,),
        around=_inside(lambda backend: backend.detect_anomaly()),
    ),
    Condition("again", f"The rule runs {TIMES} times, and what the last run does is judged.", around=_again),
)
