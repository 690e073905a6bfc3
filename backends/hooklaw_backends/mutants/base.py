"""What mutants are made of: a backend with the hooks of one kind passed through something wrong.

A mutant speaks verbs, and the few words that `OverTorch` and `OverReference` have in common, so that it can be made
over either: `of_torch` and `of_reference` in the package do that.
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
    """Return a mutant's name, which is its class's in kebab-case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", mutant.__name__).lower()


class Mutant(Over):
    """Something wrong with a backend; a subclass says in its docstring what."""

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
        """Return a tensor like this one, each of whose numbers went through the function."""
        if 0 in self.shape(tensor):
            return tensor
        changed = self.tensor(_each(function, self.tolist(tensor)), dtype=self.dtype(tensor))
        return self.laid_out_like(changed, tensor)


def _each(function: Callable[[Any], Any], data: Any) -> Any:
    return [_each(function, row) for row in data] if isinstance(data, list) else function(data)


def within(context: Callable[[], AbstractContextManager[Any]], hook: Hook) -> Hook:
    """Return a hook that runs in a context."""

    def inside(*arguments: Any) -> Any:
        with context():
            return hook(*arguments)

    return inside


def enter_for_good(context: AbstractContextManager[Any]) -> None:
    """Enter a context that nobody will leave: kept, for one that is forgotten leaves itself."""
    _open.append(context)
    context.__enter__()


def move_to_front(hooks: dict[int, Hook], handle: int) -> None:
    """Let one of the hooks be the first."""
    rest = {one: hook for one, hook in hooks.items() if one != handle}
    hook = hooks[handle]
    hooks.clear()
    hooks.update({handle: hook, **rest})


class Handle:
    """A handle that does what it is told, and may be a context manager."""

    def __init__(self, remove: Callable[[], object] = lambda: None) -> None:
        self.remove = remove

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class TensorHooks(Mutant):
    """A mutant that puts another hook on a tensor than it was given."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        raise NotImplementedError

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        altered = self.altered(tensor, hook)
        altered.__dict__.update(getattr(hook, "__dict__", {}))  # such as the mark of an unserializable hook
        return super().register_hook(tensor, altered)


class PostAccumulateHooks(Mutant):
    """A mutant that puts another post-accumulate hook on a leaf than it was given."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:
        raise NotImplementedError

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_post_accumulate_grad_hook(tensor, self.altered(tensor, hook))


class NodeHooks(Mutant):
    """A mutant that puts other hooks on a Node than it was given; what it does not alter stays."""

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - a subclass may need it
        return hook

    def altered_post(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - idem
        return hook

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_prehook(node, self.altered_pre(node, hook))

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_hook(node, self.altered_post(node, hook))


class EveryHook(TensorHooks, PostAccumulateHooks, NodeHooks):
    """A mutant with the same vice in hooks of every kind that runs in backward."""

    def around(self, hook: Hook) -> Hook:
        raise NotImplementedError

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - the same for all
        return self.around(hook)

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - idem
        return self.around(hook)

    def altered_post(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - idem
        return self.around(hook)


class OwnDispatch(Mutant):
    """A mutant that keeps the hooks of a tensor, a leaf or a Node in lists of its own, and runs them itself."""

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
            self._kept.append(target)  # or another would get its id
            hooks = self._lists[key] = []
            register(target, lambda *arguments: self.run(hooks, target, *arguments))
        hooks = self._lists[key]
        hooks.append(hook)
        return Handle(lambda: hooks.remove(hook) if hook in hooks else None)


def chained(hooks: Iterable[Hook], value: Any, *rest: Any) -> Any:
    """Run hooks, each on what the one before it returned; return what is left, or None where none said anything."""
    last = None
    for hook in hooks:
        result = hook(value, *rest)
        if result is not None:
            value = last = result
    return last


class Pairs(Mutant):
    """A mutant that sets another pair of saved-tensor hooks than it was given."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        raise NotImplementedError

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return super().saved_tensors_hooks(*self.altered(pack, unpack))


class ChangedOnUnpack(Pairs):
    """A mutant that changes what unpack returned."""

    def changed(self, tensor: Any) -> Any:
        raise NotImplementedError

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, lambda packed: self.changed(unpack(packed))


class Passes(Mutant):
    """A mutant that knows of each backward when it begins and ends."""

    def around(self, run: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.around(lambda: super(Passes, self).backward(root, gradient, **how))

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return self.around(lambda: super(Passes, self).grad(outputs, inputs, grad_outputs, **how))


class ModuleHooks(Mutant):
    """A mutant that puts another hook on a module, or on all modules, than it was given."""

    def altered(self, kind: str, hook: Hook) -> Hook:  # noqa: ARG002 - a subclass may need it
        return hook

    def put(self, kind: str, register: Hook, where: Sequence[Any], hook: Hook, options: dict[str, bool]) -> Any:
        """Register a hook of a kind on the module in ``where``, or on all where there is none."""
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
