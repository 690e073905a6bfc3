"""disable_saved_tensors_hooks, a context in which saved-tensor hooks are an error."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule

DISABLE = docstring("torch.autograd.graph.disable_saved_tensors_hooks")
NEEDS = [Capability.SAVED_TENSOR_HOOKS, Capability.DISABLE_SAVED_TENSOR_HOOKS]


class LeavingError(Exception):
    """An exception that leaves a context."""


def use_hooks(backend: Backend, trace: Trace) -> None:
    """Save a tensor under a pair that logs ``pack``."""

    def forward(x):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), lambda packed: packed):
            return backend.exp(x)

    backend.call(forward, backend.tensor([0.0], requires_grad=True))


@rule(
    "disable-hooks.raises",
    level=Level.MUST,
    sources=[DISABLE.sentence(3)],
    needs=NEEDS,
    mutants=["disabled-hooks-ignored-silently", "disabling-message-replaced", "empty-message-disables-nothing"],
    except_under={"packed": "the rule forbids the hooks that the condition brings"},
)
def test_raises(backend: Backend, trace: Trace) -> None:
    """Using saved-tensor hooks where they are disabled is an error with the given message."""
    for message in ("no hooks in here", ""):
        with (
            backend.disable_saved_tensors_hooks(message),
            trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, message),
        ):
            use_hooks(backend, trace)


@rule(
    "disable-hooks.raises.save-on-cpu",
    level=Level.MUST,
    sources=[DISABLE.sentence(3)],
    needs=[Capability.SAVE_ON_CPU, Capability.DISABLE_SAVED_TENSOR_HOOKS],
    mutants=[
        "disabled-hooks-ignored-silently",
        "disabling-message-replaced",
        "save-on-cpu-not-disabled",
        "save-on-cpu-stays-disabled",
        "save-on-cpu-enabled-by-its-error",
        "save-on-cpu-enabled-by-leaving-an-inner-context",
    ],
    except_under={"packed": "the rule forbids the hooks that the condition brings"},
)
def test_save_on_cpu_raises(backend: Backend, trace: Trace) -> None:
    """Using save_on_cpu where saved-tensor hooks are disabled is an error with the given message."""

    def forward(x, *, pin):
        with backend.save_on_cpu(pin_memory=pin):
            return backend.exp(x)

    def use(*, pin=False):
        backend.call(lambda x: forward(x, pin=pin), backend.tensor([0.0], requires_grad=True))

    for pin in (False, True):
        with backend.disable_saved_tensors_hooks("no hooks in here"):
            for _ in range(2):
                with trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, "no hooks in here"):
                    use(pin=pin)
            with backend.disable_saved_tensors_hooks("an inner reason"):
                pass
            with trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, "no hooks in here"):
                use(pin=pin)
        use()


@rule(
    "disable-hooks.restored",
    level=Level.MUST,
    sources=[DISABLE.sentence(1)],
    needs=NEEDS,
    mutants=[
        "disable-saved-tensors-hooks-lasts",
        "inner-disabling-message-stays",
        "disable-saved-tensors-hooks-ends-the-outer",
        "disable-saved-tensors-hooks-lasts-after-an-error",
    ],
    except_under={"packed": "the rule forbids the hooks that the condition brings"},
)
def test_restored(backend: Backend, trace: Trace) -> None:
    """Leaving disable_saved_tensors_hooks restores the state before it: the outer context's message, or no error.

    It is a context manager, so after an inner context only the outer one disables hooks, and after that none does.
    """
    reasons = "the outer reason", "the inner reason", "the innermost reason"
    for fails in (False, True):
        disabled(backend, trace, reasons, fails=fails)
        trace.expect()

        use_hooks(backend, trace)
        trace.expect("pack")


def disabled(backend: Backend, trace: Trace, reasons: tuple[str, ...], *, fails: bool) -> None:
    """Disable hooks for reasons inside each other, and expect each of them after the one inside it."""
    with suppress(LeavingError), backend.disable_saved_tensors_hooks(reasons[0]):
        if reasons[1:]:
            disabled(backend, trace, reasons[1:], fails=fails)
        with trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, reasons[0]):
            use_hooks(backend, trace)
        if fails:
            raise LeavingError


@rule(
    "disable-hooks.nested",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("of two nested contexts the inner one gives the message")],
    needs=NEEDS,
    mutants=["outer-disabling-message-wins", "disabling-ends-with-its-first-error"],
    except_under={"packed": "the rule forbids the hooks that the condition brings"},
)
def test_nested(backend: Backend, trace: Trace) -> None:
    """Inside nested disable_saved_tensors_hooks contexts the error has the message of the innermost one."""
    with (
        backend.disable_saved_tensors_hooks("the outer reason"),
        backend.disable_saved_tensors_hooks("the inner reason"),
    ):
        for _ in range(3):
            with trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, "the inner reason"):
                use_hooks(backend, trace)
        with backend.disable_saved_tensors_hooks("the innermost reason"):
            for _ in range(3):
                with trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, "the innermost reason"):
                    use_hooks(backend, trace)


@rule(
    "disable-hooks.when-active",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("entering the context under a pair raises the error")],
    needs=NEEDS,
    mutants=["disabling-suspends-active-hooks"],
)
def test_while_active(backend: Backend, trace: Trace) -> None:
    """Disabling saved-tensor hooks while a pair is active may itself be an error with the given message."""
    with (
        backend.saved_tensors_hooks(backend.detach, lambda packed: packed),
        trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, "no hooks in here"),
        backend.disable_saved_tensors_hooks("no hooks in here"),
    ):
        trace.log("entered")

    trace.expect()


@rule(
    "disable-hooks.thread-local",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("another thread may use hooks meanwhile")],
    needs=[*NEEDS, Capability.THREADS],
    mutants=["disable-saved-tensors-hooks-reaches-other-threads", "threads-share-their-modes"],
    except_under={"packed": "the rule forbids the hooks that the condition brings"},
)
def test_thread_local(backend: Backend, trace: Trace) -> None:
    """Disabling saved-tensor hooks in one thread may leave them enabled in another."""
    with backend.disable_saved_tensors_hooks("no hooks in this thread"), ThreadPoolExecutor(1) as other:
        other.submit(use_hooks, backend, trace).result()

    trace.expect("pack")


@rule(
    "disable-hooks.per-tensor",
    level=Level.MUST,
    sources=[DISABLE.sentence(1)],
    needs=[Capability.DISABLE_SAVED_TENSOR_HOOKS, Capability.NODES, Capability.SAVED_TENSOR_REGISTER],
    mutants=["per-tensor-hooks-disabled-too", "unpack-of-a-saved-tensor-disabled-too"],
    except_under={"packed": "the rule forbids the hooks that the condition brings"},
)
def test_own_pair_of_a_saved_tensor(backend: Backend, trace: Trace) -> None:
    """Inside disable_saved_tensors_hooks a saved tensor can still be given its own pair of hooks.

    The docstring says that the context disables the saved tensors default hooks, and these are not.
    """

    def forward(x):
        y = backend.exp(x)
        (saved,) = backend.raw_saved_tensors(backend.grad_fn(y))
        backend.saved_tensor_register_hooks(saved, trace.saw("pack", backend.detach), lambda packed: packed * 2)
        return backend.sum(y)

    x = backend.tensor([0.0], requires_grad=True)
    with backend.disable_saved_tensors_hooks("no default hooks"):
        backend.backward(backend.call(forward, x))

    trace.expect("pack")
    trace.expect_value("x.grad", [2.0], backend.grad_of(x))
