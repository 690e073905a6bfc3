"""Base classes and helpers of the mutants.

A mutant uses the backend's verbs, and the few further methods that `OverTorch` and `OverReference` share, so that
`mutants.backend` and `mutants.of_reference` can build it over either backend.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from hooklaw_backends.mutants.over_torch import OverTorch as Over
else:
    Over = object

Hook = Callable[..., Any]
Pair = tuple[Hook, Hook]
_open: list[AbstractContextManager[Any]] = []


def name_of(mutant: type) -> str:
    """Return a mutant's name: its class's name in kebab-case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", mutant.__name__).lower()


class Mutant(Over):
    """A deliberately wrong backend; the docstring of each subclass says what it breaks."""

    def __init__(self) -> None:
        super().__init__()
        of = "" if self.original == "torch-eager" else f" of {self.original}"
        self.name = f"mutant {name_of(type(self))}{of}"

    def leaves_of(self, root: Any) -> Iterator[Any]:
        """Yield the leaves of a graph."""
        ahead: list[Any] = [self.gradient_edge(root)[0]]
        seen: set[Any] = set()
        while ahead:
            node = ahead.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if self.leaf_of(node) is not None:
                yield self.leaf_of(node)
            ahead += self.node_next(node)

    def is_floating(self, tensor: Any) -> bool:
        return "float" in self.dtype(tensor)

    def mapped(self, tensor: Any, function: Callable[[Any], Any]) -> Any:
        """Return a tensor like this one with the function applied to each number."""
        if 0 in self.shape(tensor):
            return tensor
        changed = self.tensor(_each(function, self.tolist(tensor)), dtype=self.dtype(tensor))
        return self.laid_out_like(changed, tensor)


def _each(function: Callable[[Any], Any], data: Any) -> Any:
    return [_each(function, row) for row in data] if isinstance(data, list) else function(data)


def within(context: Callable[[], AbstractContextManager[Any]], hook: Hook) -> Hook:
    """Return a hook that runs inside a context."""

    def inside(*arguments: Any) -> Any:
        with context():
            return hook(*arguments)

    return inside


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


class Handle:
    """A handle that calls the given function on remove, and is a context manager."""

    def __init__(self, remove: Callable[[], object] = lambda: None) -> None:
        self.remove = remove

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class TensorHooks(Mutant):
    """A mutant that replaces each tensor hook by an altered one."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        raise NotImplementedError

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        altered = self.altered(tensor, hook)
        altered.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, for example
        return super().register_hook(tensor, altered)


class PostAccumulateHooks(Mutant):
    """A mutant that replaces each post-accumulate hook by an altered one."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        raise NotImplementedError

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_post_accumulate_grad_hook(tensor, self.altered(tensor, hook))


class NodeHooks(Mutant):
    """A mutant that replaces each Node hook by an altered one, or keeps it."""

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - a subclass may need it
        return hook

    def altered_post(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - as above
        return hook

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_prehook(node, self.altered_pre(node, hook))

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_hook(node, self.altered_post(node, hook))


class EveryHook(TensorHooks, PostAccumulateHooks, NodeHooks):
    """A mutant that alters every hook that runs during backward in the same way."""

    def around(self, hook: Hook) -> Hook:
        raise NotImplementedError

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - the same for all
        return self.around(hook)

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - as above
        return self.around(hook)

    def altered_post(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - as above
        return self.around(hook)


class OwnDispatch(Mutant):
    """A mutant that keeps the hooks of each tensor, leaf and Node in its own lists and runs them itself."""

    def __init__(self) -> None:
        super().__init__()
        self._lists: dict[tuple[str, int], list[Hook]] = {}
        self._kept: list[Any] = []

    def run(self, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:
        raise NotImplementedError

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return self._put("tensor", tensor, hook, super().register_hook)

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return self._put("leaf", tensor, hook, super().register_post_accumulate_grad_hook)

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return self._put("pre", node, hook, super().node_register_prehook)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return self._put("post", node, hook, super().node_register_hook)

    def _put(self, kind: str, target: Any, hook: Hook, register: Hook) -> Handle:
        key = (kind, id(target))
        if key not in self._lists:
            self._kept.append(target)  # so that no other object gets its id
            hooks = self._lists[key] = []
            register(target, lambda *arguments: self.run(hooks, target, *arguments))
        hooks = self._lists[key]
        hooks.append(hook)
        return Handle(lambda: hooks.remove(hook) if hook in hooks else None)


class Products(Mutant):
    """A mutant that computes products in its own way during the forward pass."""

    def product(self, multiply: Hook, left: Any, right: Any) -> Any:
        raise NotImplementedError

    def call(self, fn: Hook, *tensors: Any) -> Any:
        with self.products_by(self.product):
            return super().call(fn, *tensors)


class InBackward(Mutant):
    """A mutant that knows the root of the running backward."""

    root: Any = None

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.root = root
        try:
            super().backward(root, gradient, **how)
        finally:
            self.root = None


class InGrad(Mutant):
    """A mutant that knows the inputs of the running autograd.grad."""

    inputs: Sequence[Any] = ()

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.inputs = inputs
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.inputs = ()


def chained(hooks: Iterable[Hook], value: Any, *rest: Any) -> Any:
    """Run hooks, each on the result of the one before; return the last result that is not None."""
    last = None
    for hook in hooks:
        result = hook(value, *rest)
        if result is not None:
            value = last = result
    return last


class Pairs(Mutant):
    """A mutant that replaces each pair of saved-tensor hooks by an altered one."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        raise NotImplementedError

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return super().saved_tensors_hooks(*self.altered(pack, unpack))


class ChangedOnUnpack(Pairs):
    """A mutant that changes what unpack returns."""

    def changed(self, tensor: Any) -> Any:
        raise NotImplementedError

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, lambda packed: self.changed(unpack(packed))


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

    def __init__(self) -> None:
        super().__init__()
        self._deferred: list[Callable[[], object]] = []

    def around(self, run: Callable[[], Any]) -> Any:
        result = run()
        while self._deferred:
            self._deferred.pop(0)()
        return result

    def later(self, hook: Hook) -> Hook:
        """Return a hook that is called with the same arguments after the backward."""
        return lambda *given: self._deferred.append(lambda: hook(*given))


class ModuleHooks(Mutant):
    """A mutant that replaces each hook on a module, or on all modules, by an altered one."""

    def altered(self, kind: str, hook: Hook) -> Hook:  # noqa: ARG002 - a subclass may need it
        return hook

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: dict[str, bool]) -> Any:
        """Register a hook on the module in `where`, or on all modules if `where` is empty."""
        return register(*where, self.altered(kind, hook), **options)

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return self.put("forward_pre", super().register_forward_pre_hook, [module], hook, options)

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return self.put("forward", super().register_forward_hook, [module], hook, options)

    def register_full_backward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return self.put("full_backward_pre", super().register_full_backward_pre_hook, [module], hook, options)

    def register_full_backward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return self.put("full_backward", super().register_full_backward_hook, [module], hook, options)

    def register_module_forward_pre_hook(self, hook: Hook) -> Any:
        return self.put("forward_pre", super().register_module_forward_pre_hook, [], hook, {})

    def register_module_forward_hook(self, hook: Hook, **options: bool) -> Any:
        return self.put("forward", super().register_module_forward_hook, [], hook, options)

    def register_module_full_backward_pre_hook(self, hook: Hook) -> Any:
        return self.put("full_backward_pre", super().register_module_full_backward_pre_hook, [], hook, {})

    def register_module_full_backward_hook(self, hook: Hook) -> Any:
        return self.put("full_backward", super().register_module_full_backward_hook, [], hook, {})
