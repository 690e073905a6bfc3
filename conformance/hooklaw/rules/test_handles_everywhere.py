"""Handles of hooks of each kind: remove works wherever it is called, and removes one of several hooks alone."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
from hooklaw.rules.hooks import (
    BACKWARD,
    BACKWARD_PRE,
    EARLIER,
    FORWARD,
    FORWARD_PRE,
    GLOBAL_BACKWARD,
    GLOBAL_BACKWARD_PRE,
    GLOBAL_FORWARD,
    GLOBAL_FORWARD_PRE,
    MULTI_GRAD,
    MULTI_GRAD_ANY,
    NODE,
    NODE_PRE,
    POST_ACCUMULATE,
    TENSOR,
    Kind,
    Place,
    doubling,
    hooked,
    hooked_module,
    leaf,
    removed_alone,
)
from hooklaw.rules.passes import EVERYWHERE, whenever

TENSOR_HOOK = docstring("torch.Tensor.register_hook").sentence(5)
POST_ACCUMULATE_HOOK = docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(8)
NODE_PRE_HOOK = docstring("torch.autograd.graph.Node.register_prehook").sentence(5)
NODE_HOOK = docstring("torch.autograd.graph.Node.register_hook").sentence(5)
MULTI_GRAD_HOOK = docstring("torch.autograd.graph.register_multi_grad_hook").sentence(10)
FORWARD_PRE_HOOK = docstring("torch.nn.Module.register_forward_pre_hook").sentence(19)
FORWARD_HOOK = docstring("torch.nn.Module.register_forward_hook").sentence(19)
BACKWARD_PRE_HOOK = docstring("torch.nn.Module.register_full_backward_pre_hook").sentence(14)
BACKWARD_HOOK = docstring("torch.nn.Module.register_full_backward_hook").sentence(18)
FORWARD_PRE_OF_ALL = docstring("torch.nn.modules.module.register_module_forward_pre_hook").sentence(11)
FORWARD_OF_ALL = docstring("torch.nn.modules.module.register_module_forward_hook").sentence(11)
BACKWARD_PRE_OF_ALL = docstring("torch.nn.modules.module.register_module_full_backward_pre_hook").sentence(6)
BACKWARD_OF_ALL = docstring("torch.nn.modules.module.register_module_full_backward_hook").sentence(6)
NEEDS = [*EVERYWHERE, Capability.RETAIN_GRAPH]
Use = Callable[[], Any]
"""Runs the hooks."""
KINDS = (
    "tensor hook on a leaf",
    "tensor hook on a non-leaf",
    "post-accumulate-grad hook",
    "Node pre-hook",
    "Node hook",
    "multi-grad hook",
    "multi-grad hook in mode any",
)
OWNERS = ("first owner", "second owner")


@contextmanager
def used(backend: Backend, trace: Trace, kind: Kind) -> Generator[tuple[list[Any], Use]]:
    """Register three hooks of a kind, and give their handles and what runs them."""
    handles, hooks = list[Any](), [trace.saw(label) for label in EARLIER]

    def register(*given: Any) -> Any:
        handles.append(kind.register(*given))
        return handles[-1]

    noting = kind._replace(register=register)
    if kind.of_module:
        with hooked_module(backend, noting, *hooks) as module:
            yield handles, lambda: backend.backward(backend.call(lambda x: backend.sum(module(x)), leaf(backend)))
    else:
        with hooked(backend, noting, *hooks) as (root, _):
            yield handles, lambda: backend.backward(root, retain_graph=True)


def removed_in(backend: Backend, trace: Trace, kind: Kind, place: Place) -> None:
    """Expect each of three hooks to be removed in a place, before it has run and after, and the others to stay."""
    for removed, label in enumerate(EARLIER):
        for runs in range(2):
            with used(backend, trace, kind) as (handles, use):
                for _ in range(runs):
                    use()
                    trace.expect_in_any_order(*EARLIER)
                place(handles[removed].remove)
                use()
                trace.expect_in_any_order(*(other for other in EARLIER if other != label))


def removed_everywhere(backend: Backend, trace: Trace, *kinds: Kind) -> None:
    """Expect this of some kinds of hooks, in all places."""
    for place in whenever(backend).values():
        for kind in kinds:
            removed_in(backend, trace, kind, place)


def of_each_kind(backend: Backend, owner: str) -> tuple[dict[str, Callable[[Any], Any]], Use]:
    """Make a graph; return what registers a hook of each kind in it, by label, and what runs the hooks."""
    x = leaf(backend)
    y = backend.call(lambda x: x * 2, x)
    z = backend.call(lambda y: y * 3, y)
    root, node = backend.call(backend.sum, z), backend.grad_fn(y)
    kinds = (
        partial(backend.register_hook, x),
        partial(backend.register_hook, y),
        partial(backend.register_post_accumulate_grad_hook, x),
        partial(backend.node_register_prehook, node),
        partial(backend.node_register_hook, node),
        partial(backend.register_multi_grad_hook, [y, z]),
        partial(backend.register_multi_grad_hook, [y, z], mode="any"),
    )
    places = {f"{kind}, {owner}": register for kind, register in zip(KINDS, kinds, strict=True)}
    return places, partial(backend.backward, root, retain_graph=True)


def of_each_kind_of_module(backend: Backend, owner: str) -> tuple[dict[str, Callable[[Any], Any]], Use]:
    """Make a module; return what registers a hook of each kind on it, by label, and what runs the hooks."""
    module = doubling(backend)
    kinds = {
        "forward pre-hook": backend.register_forward_pre_hook,
        "forward hook": backend.register_forward_hook,
        "backward pre-hook": backend.register_full_backward_pre_hook,
        "backward hook": backend.register_full_backward_hook,
    }
    places = {f"{kind}, {owner}": partial(register, module) for kind, register in kinds.items()}
    return places, lambda: backend.backward(backend.call(lambda x: backend.sum(module(x)), leaf(backend)))


def removed_among_others(
    backend: Backend, trace: Trace, made: Callable[[Backend, str], tuple[dict[str, Callable[[Any], Any]], Use]]
) -> None:
    """Expect the handle of a hook of each kind to leave those of other kinds, and of its kind on another owner."""
    (places, use), (of_others, use_others) = (made(backend, owner) for owner in OWNERS)
    removed_alone(trace, places | of_others, lambda: [use(), use_others()])


@rule(
    "tensor-hook.handle.every-place",
    level=Level.MUST,
    sources=[TENSOR_HOOK],
    needs=NEEDS,
    mutants=[
        "tensor-hook-stays-in-a-pass",
        "tensor-hook-stays-another-thread",
        "tensor-hook-removed-with-the-one-before-in-a-module",
        "tensor-hook-removed-with-the-one-after-in-no-grad",
    ],
)
def test_tensor(backend: Backend, trace: Trace) -> None:
    """The handle of a tensor hook removes this hook, and no other, wherever it is removed.

    In no_grad, during another pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks,
    in another thread, and after a backward that failed; whether the hook has run or not.
    """
    removed_everywhere(backend, trace, TENSOR)


@rule(
    "handle.every-place",
    level=Level.MUST,
    sources=[POST_ACCUMULATE_HOOK, NODE_PRE_HOOK, NODE_HOOK, MULTI_GRAD_HOOK],
    needs=[
        *NEEDS,
        Capability.POST_ACCUMULATE,
        Capability.NODES,
        Capability.NODE_HOOKS,
        Capability.MULTI_GRAD,
    ],
    mutants=[
        "post-accumulate-hook-stays-in-no-grad",
        "node-pre-hook-removed-with-the-one-before-in-a-pass",
        "node-hook-removed-with-the-one-after-another-thread",
        "multi-grad-hook-stays-in-a-module",
        "any-grad-hook-stays-that-has-not-run",
        "post-accumulate-hook-handle-removes-those-of-other-kinds",
        "node-pre-hook-handle-removes-those-of-other-kinds",
        "node-hook-handle-removes-those-of-other-owners",
        "node-hook-handle-removes-all-equal",
    ],
)
def test_node(backend: Backend, trace: Trace) -> None:
    """The handle of a hook on a leaf, Node or several tensors removes this hook, no other, wherever it is removed."""
    removed_everywhere(backend, trace, POST_ACCUMULATE, NODE_PRE, NODE, MULTI_GRAD, MULTI_GRAD_ANY)
    removed_among_others(backend, trace, of_each_kind)


@rule(
    "module.handle.every-place",
    level=Level.MUST,
    sources=[FORWARD_PRE_HOOK, FORWARD_HOOK, BACKWARD_PRE_HOOK, BACKWARD_HOOK],
    needs=[*EVERYWHERE, Capability.MODULE_BACKWARD_HOOKS, Capability.MODULE_BACKWARD_PRE_HOOKS],
    mutants=[
        "forward-pre-hook-stays-in-no-grad",
        "forward-hook-removed-with-the-one-before-in-a-pass",
        "backward-pre-hook-removed-with-the-one-after-another-thread",
        "backward-hook-stays-in-a-module",
        "backward-pre-hook-handle-removes-those-of-other-kinds",
        "forward-hook-handle-removes-those-of-other-owners",
    ],
)
def test_module(backend: Backend, trace: Trace) -> None:
    """The handle of a module's hook removes this hook, and no other, wherever it is removed."""
    removed_everywhere(backend, trace, FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD)
    removed_among_others(backend, trace, of_each_kind_of_module)


@rule(
    "module.global.handle.every-place",
    level=Level.MUST,
    sources=[FORWARD_PRE_OF_ALL, FORWARD_OF_ALL, BACKWARD_PRE_OF_ALL, BACKWARD_OF_ALL],
    needs=[
        *EVERYWHERE,
        Capability.GLOBAL_MODULE_HOOKS,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
    ],
    mutants=[
        "global-forward-pre-hook-stays-in-no-grad",
        "global-forward-hook-removed-with-the-one-before-in-a-pass",
        "global-backward-pre-hook-removed-with-the-one-after-another-thread",
        "global-backward-hook-stays-that-has-not-run",
        "global-backward-hook-handle-removes-those-of-other-kinds",
    ],
)
def test_all_modules(backend: Backend, trace: Trace) -> None:
    """The handle of a hook on all modules removes this hook, and no other, wherever it is removed."""
    removed_everywhere(backend, trace, GLOBAL_FORWARD_PRE, GLOBAL_FORWARD, GLOBAL_BACKWARD_PRE, GLOBAL_BACKWARD)
    module = doubling(backend)
    places = {
        "forward pre-hook": backend.register_module_forward_pre_hook,
        "forward hook": backend.register_module_forward_hook,
        "backward pre-hook": backend.register_module_full_backward_pre_hook,
        "backward hook": backend.register_module_full_backward_hook,
    }
    removed_alone(
        trace,
        places,
        lambda: backend.backward(backend.call(lambda x: backend.sum(module(x)), leaf(backend))),
        module=module,
    )


@rule(
    "module.handle.options",
    level=Level.MUST,
    sources=[FORWARD_PRE_HOOK, FORWARD_HOOK, BACKWARD_PRE_HOOK, BACKWARD_HOOK],
    needs=[
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
        Capability.FORWARD_PRE_HOOK_KWARGS,
        Capability.FORWARD_HOOK_KWARGS,
        Capability.FORWARD_HOOK_PREPEND,
        Capability.BACKWARD_HOOK_PREPEND,
        Capability.ALWAYS_CALL,
    ],
    mutants=[
        "prepended-module-hooks-stay",
        "module-hooks-with-kwargs-stay",
        "always-called-hooks-stay",
        "first-module-hook-with-options-stays",
    ],
)
def test_with_options(backend: Backend, trace: Trace) -> None:
    """The handle of a module's hook removes this hook, and no other, with each option of its registration."""
    of_forward = (backend.register_forward_pre_hook, backend.register_forward_hook)
    of_backward = (backend.register_full_backward_pre_hook, backend.register_full_backward_hook)
    ways: list[tuple[Callable[..., Any], dict[str, bool]]] = [
        *((register, {"prepend": True}) for register in (*of_forward, *of_backward)),
        *((register, {"with_kwargs": True}) for register in of_forward),
        (backend.register_forward_hook, {"always_call": True}),
    ]
    for register, options in ways:
        module = doubling(backend)
        handles = [register(module, lambda *_, label=label: trace.log(label), **options) for label in EARLIER]
        for removed, left in ((1, [EARLIER[0], EARLIER[2]]), (0, [EARLIER[2]]), (2, [])):
            handles[removed].remove()
            for _ in range(2):
                backend.backward(backend.call(lambda x, module=module: backend.sum(module(x)), leaf(backend)))

                trace.expect_in_any_order(*left)
