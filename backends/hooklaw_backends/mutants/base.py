"""What mutants are made of: torch in eager mode with the hooks of one kind passed through something wrong."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Self

from hooklaw_backends.torch_eager import Hook, TorchEager, graph, torch

ENGINE: Any = import_module("torch._C")._autograd  # noqa: SLF001 - pairs and modes have no public way in
Pair = tuple[Hook, Hook]
PRODUCT = torch.Tensor.__mul__
"""Kept from the start: of two threads that replace it at once, neither can put the other's back."""


def name_of(mutant: type) -> str:
    """Return a mutant's name, which is its class's in kebab-case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", mutant.__name__).lower()


class Mutant(TorchEager):
    """torch in eager mode on the CPU; a subclass says in its docstring what it does wrong."""

    def __init__(self) -> None:
        super().__init__(name=f"mutant {name_of(type(self))}")

    def reset(self) -> None:
        """Undo what a mutant or a failed rule left in this process: modes, pairs of hooks, their being disabled."""
        super().reset()
        ENGINE._saved_tensors_hooks_enable()  # noqa: SLF001 - no public way
        while ENGINE._top_saved_tensors_default_hooks(True):  # noqa: SLF001, FBT003 - idem
            ENGINE._pop_saved_tensors_default_hooks()  # noqa: SLF001 - idem


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


def leaves_of(root: Any) -> Iterator[Any]:
    """Yield the leaves of a graph."""
    ahead: list[Any] = [graph.get_gradient_edge(root).node]
    seen: set[Any] = set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        ahead += [edge[0] for edge in node.next_functions]


@contextmanager
def products_by(multiply: Callable[[Hook, Any, Any], Any]) -> Generator[None]:
    """Let ``*`` be ``multiply(PRODUCT, left, right)`` meanwhile."""
    torch.Tensor.__mul__ = lambda left, right: multiply(PRODUCT, left, right)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.__mul__ = PRODUCT  # type: ignore[method-assign]
