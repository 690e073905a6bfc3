"""Forward hooks in each kind of call, wherever they were registered, and their errors."""

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import FORWARD, FORWARD_PRE, GLOBAL_FORWARD, GLOBAL_FORWARD_PRE
from hooklaw.rules.passes import PLACES, called_from, called_in, errors_in

FORWARD_PRE_HOOK = docstring("torch.nn.Module.register_forward_pre_hook")
FORWARD_HOOK = docstring("torch.nn.Module.register_forward_hook")
GLOBAL_FORWARD_PRE_HOOK = docstring("torch.nn.modules.module.register_module_forward_pre_hook")
GLOBAL_FORWARD_HOOK = docstring("torch.nn.modules.module.register_module_forward_hook")
REACHES = observed("the error of a hook reaches the caller as it is, and the next call is like any other")


@rule(
    "module.forward-pre.fire.every-call",
    level=Level.MUST,
    sources=[FORWARD_PRE_HOOK.sentence(2, 5, 8, 14)],
    needs=[Capability.MODULES, *PLACES, Capability.THREADS],
    mutants=[
        "forward-pre-hook-lost-no-grad",
        "forward-pre-hook-lost-in-a-checkpoint",
        "forward-pre-hook-lost-in-a-module",
        "forward-pre-hook-twice-with-pairs",
        "forward-pre-hook-lost-another-thread",
        "forward-pre-hook-ignored-no-grad",
    ],
)
def test_forward_pre(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook runs once in each call, and what it returns is used.

    In no_grad, in a checkpointed function, inside another module, with saved-tensor hooks active, in another thread.
    Three hooks that were registered before it run before it, in order.
    """
    called_in(backend, trace, FORWARD_PRE)


@rule(
    "module.forward-pre.fire.every-place",
    level=Level.MUST,
    sources=[FORWARD_PRE_HOOK.sentence(2, 5, 8, 14)],
    needs=[Capability.MODULES, *PLACES],
    mutants=[
        "forward-pre-hook-lost-made-in-no-grad",
        "forward-pre-hook-lost-made-in-a-pass",
        "forward-pre-hook-lost-made-in-a-checkpoint",
        "forward-pre-hook-twice-made-with-pairs",
        "forward-pre-hook-ignored-made-in-no-grad",
        "forward-pre-hooks-registered-in-no-grad-run-once",
        "forward-pre-hooks-registered-in-a-pass-run-once",
        "forward-pre-hooks-registered-in-a-checkpoint-run-once",
    ],
)
def test_forward_pre_from_every_place(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook runs no matter what was under way when it was registered.

    In no_grad, during a pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks.
    Three hooks that were registered before it run before it, in order.
    """
    called_from(backend, trace, FORWARD_PRE)


@rule(
    "module.forward-pre.exception.every-call",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, *PLACES, Capability.THREADS],
    mutants=[
        "forward-pre-hook-swallowed-no-grad",
        "forward-pre-hook-swallowed-in-a-checkpoint",
        "forward-pre-hook-swallowed-in-a-module",
        "forward-pre-hook-swallowed-third",
        "forward-pre-hook-swallowed-third-call",
        "forward-pre-hook-swallowed-another-thread",
        "forward-pre-hook-twice-after-a-failure",
    ],
)
def test_forward_pre_error(backend: Backend, trace: Trace) -> None:
    """An error of a forward pre-hook reaches the caller, and the next call is right.

    In each kind of call; an error of the third hook in its third call too.
    """
    errors_in(backend, trace, FORWARD_PRE)


@rule(
    "module.forward.fire.every-call",
    level=Level.MUST,
    sources=[FORWARD_HOOK.sentence(2, 5, 7, 12)],
    needs=[Capability.MODULES, *PLACES, Capability.THREADS],
    mutants=[
        "forward-hook-lost-no-grad",
        "forward-hook-lost-in-a-checkpoint",
        "forward-hook-lost-in-a-module",
        "forward-hook-twice-with-pairs",
        "forward-hook-lost-another-thread",
        "forward-hook-ignored-no-grad",
    ],
)
def test_forward(backend: Backend, trace: Trace) -> None:
    """A forward hook runs once in each call, and what it returns is used.

    In no_grad, in a checkpointed function, inside another module, with saved-tensor hooks active, in another thread.
    Three hooks that were registered before it run before it, in order.
    """
    called_in(backend, trace, FORWARD)


@rule(
    "module.forward.fire.every-place",
    level=Level.MUST,
    sources=[FORWARD_HOOK.sentence(2, 5, 7, 12)],
    needs=[Capability.MODULES, *PLACES],
    mutants=[
        "forward-hook-lost-made-in-no-grad",
        "forward-hook-lost-made-in-a-pass",
        "forward-hook-lost-made-in-a-checkpoint",
        "forward-hook-twice-made-with-pairs",
        "forward-hook-ignored-made-in-no-grad",
    ],
)
def test_forward_from_every_place(backend: Backend, trace: Trace) -> None:
    """A forward hook runs no matter what was under way when it was registered.

    In no_grad, during a pass, in a checkpointed function, in the forward of a module, under saved-tensor hooks.
    Three hooks that were registered before it run before it, in order.
    """
    called_from(backend, trace, FORWARD)


@rule(
    "module.forward.exception.every-call",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, *PLACES, Capability.THREADS],
    mutants=[
        "forward-hook-swallowed-no-grad",
        "forward-hook-swallowed-in-a-checkpoint",
        "forward-hook-swallowed-in-a-module",
        "forward-hook-swallowed-third",
        "forward-hook-swallowed-third-call",
        "forward-hook-swallowed-another-thread",
        "forward-hook-twice-after-a-failure",
    ],
)
def test_forward_error(backend: Backend, trace: Trace) -> None:
    """An error of a forward hook reaches the caller, and the next call is right.

    In each kind of call; an error of the third hook in its third call too.
    """
    errors_in(backend, trace, FORWARD)


@rule(
    "module.global-forward-pre.fire.every-call",
    level=Level.MUST,
    sources=[GLOBAL_FORWARD_PRE_HOOK.sentence(3, 7)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, *PLACES, Capability.THREADS],
    mutants=[
        "global-forward-pre-hook-lost-no-grad",
        "global-forward-pre-hook-lost-in-a-checkpoint",
        "global-forward-pre-hook-lost-in-a-module",
        "global-forward-pre-hook-twice-with-pairs",
        "global-forward-pre-hook-lost-another-thread",
        "global-forward-pre-hook-ignored-no-grad",
    ],
)
def test_global_forward_pre(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook on all modules runs once in each call, and what it returns is used.

    In no_grad, in a checkpointed function, inside another module, with saved-tensor hooks active, in another thread.
    """
    called_in(backend, trace, GLOBAL_FORWARD_PRE)


@rule(
    "module.global-forward-pre.fire.every-place",
    level=Level.MUST,
    sources=[GLOBAL_FORWARD_PRE_HOOK.sentence(3, 7)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, *PLACES],
    mutants=[
        "global-forward-pre-hook-lost-made-in-no-grad",
        "global-forward-pre-hook-lost-made-in-a-pass",
        "global-forward-pre-hook-lost-made-in-a-checkpoint",
        "global-forward-pre-hook-twice-made-with-pairs",
        "global-forward-pre-hook-ignored-made-in-no-grad",
    ],
)
def test_global_forward_pre_from_every_place(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook on all modules runs no matter what was under way when it was registered.

    In no_grad, during a pass, in a checkpointed function, under saved-tensor hooks.
    """
    called_from(backend, trace, GLOBAL_FORWARD_PRE)


@rule(
    "module.global-forward-pre.exception.every-call",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, *PLACES, Capability.THREADS],
    mutants=[
        "global-forward-pre-hook-swallowed-no-grad",
        "global-forward-pre-hook-swallowed-in-a-checkpoint",
        "global-forward-pre-hook-swallowed-in-a-module",
        "global-forward-pre-hook-swallowed-third",
        "global-forward-pre-hook-swallowed-third-call",
        "global-forward-pre-hook-swallowed-another-thread",
        "global-forward-pre-hook-twice-after-a-failure",
    ],
)
def test_global_forward_pre_error(backend: Backend, trace: Trace) -> None:
    """An error of a forward pre-hook on all modules reaches the caller, and the next call is right.

    In each kind of call; an error of the third hook in its third call too.
    """
    errors_in(backend, trace, GLOBAL_FORWARD_PRE)


@rule(
    "module.global-forward.fire.every-call",
    level=Level.MUST,
    sources=[GLOBAL_FORWARD_HOOK.sentence(3, 4, 7)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, *PLACES, Capability.THREADS],
    mutants=[
        "global-forward-hook-lost-no-grad",
        "global-forward-hook-lost-in-a-checkpoint",
        "global-forward-hook-lost-in-a-module",
        "global-forward-hook-twice-with-pairs",
        "global-forward-hook-lost-another-thread",
        "global-forward-hook-ignored-no-grad",
    ],
)
def test_global_forward(backend: Backend, trace: Trace) -> None:
    """A forward hook on all modules runs once in each call, and what it returns is used.

    In no_grad, in a checkpointed function, inside another module, with saved-tensor hooks active, in another thread.
    """
    called_in(backend, trace, GLOBAL_FORWARD)


@rule(
    "module.global-forward.fire.every-place",
    level=Level.MUST,
    sources=[GLOBAL_FORWARD_HOOK.sentence(3, 4, 7)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, *PLACES],
    mutants=[
        "global-forward-hook-lost-made-in-no-grad",
        "global-forward-hook-lost-made-in-a-pass",
        "global-forward-hook-lost-made-in-a-checkpoint",
        "global-forward-hook-twice-made-with-pairs",
        "global-forward-hook-ignored-made-in-no-grad",
    ],
)
def test_global_forward_from_every_place(backend: Backend, trace: Trace) -> None:
    """A forward hook on all modules runs no matter what was under way when it was registered.

    In no_grad, during a pass, in a checkpointed function, under saved-tensor hooks.
    """
    called_from(backend, trace, GLOBAL_FORWARD)


@rule(
    "module.global-forward.exception.every-call",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REACHES],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, *PLACES, Capability.THREADS],
    mutants=[
        "global-forward-hook-swallowed-no-grad",
        "global-forward-hook-swallowed-in-a-checkpoint",
        "global-forward-hook-swallowed-in-a-module",
        "global-forward-hook-swallowed-third",
        "global-forward-hook-swallowed-third-call",
        "global-forward-hook-swallowed-another-thread",
        "global-forward-hook-twice-after-a-failure",
    ],
)
def test_global_forward_error(backend: Backend, trace: Trace) -> None:
    """An error of a forward hook on all modules reaches the caller, and the next call is right.

    In each kind of call; an error of the third hook in its third call too.
    """
    errors_in(backend, trace, GLOBAL_FORWARD)
