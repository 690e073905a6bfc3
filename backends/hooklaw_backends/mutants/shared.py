"""Helpers of the mutants, and base classes of those that have to know what is running."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from operator import is_
from typing import Any, Self

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Maker, Mutant, Pair, altering, fresh, overriding

_open: list[AbstractContextManager[Any]] = []


def without_result(hook: Hook) -> Hook:
    """Return a hook whose return value is dropped."""
    return lambda *given: (hook(*given), None)[1]


def once(hook: Hook) -> Hook:
    """Return a hook that runs only the first time."""
    fired: list[bool] = []
    return lambda *given: None if fired else (fired.append(True), hook(*given))[1]


def enter_for_good(context: AbstractContextManager[Any]) -> None:
    """Enter a context that is never left; keep a reference, because a context left by garbage collection would exit."""
    _open.append(context)
    context.__enter__()


def move_to_front(hooks: dict[int, Hook], handle: int) -> None:
    """Move one of the hooks to the front."""
    rest = {other: hooks.pop(other) for other in list(hooks) if other != handle}
    hooks.update(rest)


def chained(hooks: Iterable[Hook], value: Any, *rest: Any) -> Any:
    """Run hooks, each on the result of the one before; return the last result that is not None."""
    last = None
    for hook in hooks:
        result = hook(value, *rest)
        if result is not None:
            value = last = result
    return last


def as_prehook(hook: Hook, place: int) -> Hook:
    """Return a Node pre-hook that runs a tensor hook on the gradient in one place."""

    def prehook(grads: Any) -> Any:
        result = hook(grads[place])
        return None if result is None else (*grads[:place], result, *grads[place + 1 :])

    return prehook


def inputs_to(mutant: Mutant, module: Any, **options: bool) -> list[Any]:
    """Return a list with the inputs to a module's last call, as a forward pre-hook gets them."""
    inputs: list[Any] = []

    def note(_: Any, given: Any) -> None:
        inputs[:] = given

    mutant.register_forward_pre_hook(module, note, **options)
    return inputs


def without_input_gradients(*registers: str, base: type[Mutant] = Mutant) -> Maker:
    """Make a mutant that calls the hook that ``(self, module, hook)`` returns if no input of a module requires grad."""

    def make(step: Hook) -> type[Mutant]:
        @altering(*registers, base=base)
        @wraps(step)
        def altered(self: Mutant, module: Any, hook: Hook) -> Hook:
            inputs, wrong = inputs_to(self, module), step(self, module, hook)

            def run(*given: Any) -> Any:
                is_right = any(self.requires_grad(each) for each in inputs if self.is_tensor(each))
                return (hook if is_right else wrong)(*given)

            return run

        return altered

    return make


class Handle:
    """A handle that calls the given function on remove, and is a context manager."""

    def __init__(self, remove: Callable[[], object] = lambda: None) -> None:
        self.remove = remove

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def handle_of(handles: Sequence[Any]) -> Handle:
    """Return a handle that removes several hooks."""
    return Handle(lambda: [handle.remove() for handle in handles])


def in_a_free_place(places: list[Hook | None], hook: Hook) -> Handle:
    """Put a hook in the first place that is free, or at the end; its handle frees the place."""
    if None in places:
        places[places.index(None)] = hook
    else:
        places.append(hook)

    def remove() -> None:
        if hook in places:
            places[places.index(hook)] = None

    return Handle(remove)


class CountsNoGrad(Mutant):
    """A mutant that knows how many no_grad contexts are open."""

    depth = 0

    def reset(self) -> None:
        super().reset()
        self.depth = 0

    @contextmanager
    def no_grad(self) -> Generator[None]:
        self.depth += 1
        try:
            with super().no_grad():
                yield
        finally:
            self.depth -= 1


class KnowsReplacements(Mutant):
    """A mutant that keeps what hooks returned, each with the values that it replaced."""

    replacements = fresh(list[tuple[Sequence[Any], Sequence[Any]]])

    def noted(self, result: Any, values: Sequence[Any]) -> Any:
        """Keep what a hook returned for these values, and return it."""
        if result is not None:
            self.replacements.append((result if isinstance(result, tuple | list) else (result,), values))
        return result

    def replaced_by(self, values: Sequence[Any]) -> Any:
        """Return the values that an earlier hook replaced by these, or None."""
        for after, before in self.replacements:
            if len(after) == len(values) and all(map(is_, after, values)):
                return before
        return None


class _OwnLists(Mutant):
    """A mutant that keeps the hooks of each tensor, leaf and Node in its own lists."""

    lists = fresh(dict[tuple[Hook, int], list[Hook]])


def dispatching(step: Hook) -> type[Mutant]:
    """Make a mutant that runs ``(self, hooks, target, ...)`` in place of the hooks in one place of a tensor or Node."""

    @wraps(step)
    def register(self: _OwnLists, old: Hook, target: Any, hook: Hook) -> Handle:
        if (old, id(target)) not in self.lists:
            self.kept.append(target)  # so that no other object gets its id
            old(target, partial(step, self, self.lists.setdefault((old, id(target)), []), target))
        hooks = self.lists[old, id(target)]
        hooks.append(hook)
        return Handle(lambda: hooks.remove(hook) if hook in hooks else None)

    return overriding(*verbs.IN_BACKWARD, base=_OwnLists)(register)


class Passes(Mutant):
    """A mutant that runs code around each backward."""

    def around(self, run: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.around(lambda: super(Passes, self).backward(root, gradient, **how))

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return self.around(lambda: super(Passes, self).grad(outputs, inputs, grad_outputs, **how))


class Deferring(Passes):
    """A mutant that runs hooks only after the whole backward."""

    def around(self, run: Callable[[], Any]) -> Any:
        result = run()
        while self.kept:
            self.kept.pop(0)()
        return result

    def later(self, hook: Hook, *given: Any) -> None:
        """Call the hook after the backward."""
        self.kept.append(partial(hook, *given))


class PutsOff(Deferring):
    """A mutant that knows whether a pass is running, and does some things only after it."""

    running = 0

    def around(self, run: Callable[[], Any]) -> Any:
        self.running += 1
        try:
            return super().around(run)
        finally:
            self.running -= 1

    def registered_later(self, register: Hook, owner: Any, hook: Hook) -> Any:
        """Register a hook, after the running pass if there is one."""
        if not self.running:
            return register(owner, hook)
        self.later(register, owner, hook)
        return Handle()

    def removing_later(self, handle: Any) -> Handle:
        """Return a handle that removes the hook, after the running pass if there is one."""
        return Handle(lambda: self.later(handle.remove) if self.running else handle.remove())


class CallsTheRest(Passes):
    """A mutant that calls the hooks that did not run in a backward after it."""

    waiting = fresh(dict[Hook, Hook])

    def around(self, run: Callable[[], Any]) -> Any:
        before = self.waiting.copy()
        result = run()
        for hook in [hook for hook in before if hook in self.waiting]:
            before[hook]()
        self.waiting = before
        return result

    def waiting_for(self, hook: Hook, *nothing: Any) -> Hook:
        """Return a hook that is called with these arguments after each backward in which it does not run."""
        self.waiting[hook] = partial(hook, *nothing)
        return lambda *given: (self.waiting.pop(hook, None), hook(*given))[1]


class KnowsLastOutputs(Mutant):
    """A mutant that knows how many outputs a Node of split has."""

    _outputs = "how many outputs it has"

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        outputs = super().split(tensor, size)
        if self.requires_grad(outputs[0]):
            self.node_metadata(self.grad_fn(outputs[0]))[self._outputs] = len(outputs)
        return outputs

    def is_in_between(self, tensor: Any) -> bool:
        """Whether a tensor is an output of split, and neither the first nor the last."""
        edge = self.gradient_edge(tensor)
        return 0 < edge[1] < self.node_metadata(edge[0]).get(self._outputs, 0) - 1

    def last(self, edge: Any) -> Any:
        """Return the edge of the last output of an edge's Node; any other value as it is."""
        if self.is_tensor(edge) or type(edge) in {list, tuple}:
            return edge
        number = self.node_metadata(edge[0]).get(self._outputs, edge[1] + 1)
        return type(edge)(edge[0], number - 1, *edge[2:])


class KnowsDepth(Mutant):
    """A mutant that knows inside how many checkpoints it is; it changes nothing."""

    depth = 0

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def deeper(*given: Any, **keywords: Any) -> Any:
            self.depth += 1
            try:
                return fn(*given, **keywords)
            finally:
                self.depth -= 1

        return super().checkpoint(deeper, *inputs, **how)


def falsy_means_saved(mutant: Mutant, pack: Hook, unpack: Hook, if_: Callable[[Any], bool]) -> Pair:
    """Return a pair that uses the saved tensor if pack returned something falsy, and ``if_(packed)`` holds."""

    def keep(tensor: Any) -> Any:
        packed = pack(tensor)
        is_wrong = if_(packed) and not mutant.is_tensor(packed) and not packed
        return packed, mutant.detach(tensor) if is_wrong else None

    return keep, lambda both: unpack(both[0]) if both[1] is None else both[1]
