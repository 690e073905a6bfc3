"""Serialization of tensors with hooks."""

import warnings

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import NUMBERS, nothing

UNSERIALIZABLE = docstring("torch.utils.hooks.unserializable_hook")
NEEDS = (Capability.TENSOR_HOOKS, Capability.SERIALIZATION)


@rule(
    "tensor-hook.serialize.warns",
    level=Level.MUST,
    sources=[UNSERIALIZABLE.sentence(2)],
    needs=NEEDS,
    mutants=[
        "hooks-dropped-in-silence",
        "any-mark-silences-the-warning",
        "mark-of-the-last-hook-silences-the-warning",
        "hooks-of-results-dropped-in-silence",
        "first-hook-needs-no-mark",
        "last-hook-needs-no-mark",
        "hooks-of-a-tensor-that-was-saved-before-dropped-in-silence",
    ],
    except_under={"hooked": "the tensor has a hook before the rule registers any, so serializing it warns already"},
)
def test_warns(backend: Backend, trace: Trace) -> None:
    """Serializing a tensor with a tensor hook warns, unless each of its tensor hooks is marked as unserializable."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for tensor in (backend.call(lambda x: x * 2, x), x):
        before = _warnings_of_saving(backend, tensor)

        backend.register_hook(tensor, backend.unserializable_hook(trace.saw("marked")))
        handle = backend.register_hook(tensor, trace.saw("hook"))
        backend.register_hook(tensor, backend.unserializable_hook(trace.saw("marked too")))
        more = [_warnings_of_saving(backend, tensor) > before for _ in range(2)]
        trace.expect_value("more warnings with a hook, each time", [True, True], more)

        handle.remove()
        trace.expect_value("warnings after its removal", before, _warnings_of_saving(backend, tensor))

    for marks in ([False], [False, True], [True, False]):
        y = backend.tensor([1.0, 2.0], requires_grad=True)
        before = _warnings_of_saving(backend, y)
        for is_marked in marks:
            hook = trace.saw("hook")  # a new one, since a mark stays
            backend.register_hook(y, backend.unserializable_hook(hook) if is_marked else hook)
        more = _warnings_of_saving(backend, y) > before
        trace.expect_value(f"more warnings, marked: {marks}", expected=True, observed=more)


@rule(
    "tensor-hook.serialize.unserializable-hook",
    level=Level.MUST,
    sources=[UNSERIALIZABLE.sentence(1, 2)],
    needs=NEEDS,
    mutants=[
        "unserializable-mark-ignored",
        "marked-hooks-replace-nothing",
        "marked-hooks-run-once",
        "marked-hooks-run-twice-at-most",
        "later-marked-hooks-never-run",
        "marks-ignored-after-a-backward",
        "marks-of-three-hooks-ignored",
        "saving-removes-marked-hooks-of-results",
        "marks-ignored-on-single-values",
    ],
)
def test_marked_hook(backend: Backend, trace: Trace) -> None:
    """Serializing a tensor whose hook is marked as unserializable does not warn of it, and the hook runs as usual."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    before = _warnings_of_saving(backend, x)

    backend.register_hook(x, backend.unserializable_hook(trace.saw("hook", lambda grad: grad * 10)))
    trace.expect_value("warnings", before, _warnings_of_saving(backend, x))

    for total in (20.0, 40.0, 60.0):
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
        trace.expect(("hook", [2.0, 2.0]))
        trace.expect_value("x.grad", [total, total], backend.grad_of(x))
        trace.expect_value("warnings after backward", before, _warnings_of_saving(backend, x))

    for numbers in NUMBERS:
        y = backend.tensor(numbers, requires_grad=True)
        before = _warnings_of_saving(backend, y)
        backend.register_hook(y, backend.unserializable_hook(nothing))
        trace.expect_value("warnings of a hook that is marked", before, _warnings_of_saving(backend, y))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    doubled = backend.call(lambda x: x * 2, x)
    before = _warnings_of_saving(backend, doubled)
    for factor in (2, 3, 5):
        backend.register_hook(doubled, backend.unserializable_hook(lambda grad, factor=factor: grad * factor))
    for _ in range(2):
        trace.expect_value("warnings with three hooks", before, _warnings_of_saving(backend, doubled))
    backend.backward(backend.call(backend.sum, doubled))
    trace.expect_value("x.grad after three hooks", [60.0, 60.0], backend.grad_of(x))


@rule(
    "post-acc.serialize.warns",
    level=Level.MUST,
    sources=[UNSERIALIZABLE.sentence(1, 2)],
    needs=[Capability.POST_ACCUMULATE, Capability.SERIALIZATION],
    mutants=["post-accumulate-hooks-dropped-in-silence", "marks-of-post-accumulate-hooks-ignored"],
    except_under={"hooked": "the tensor has a hook before the rule registers any, so serializing it warns already"},
)
def test_post_accumulate_hooks(backend: Backend, trace: Trace) -> None:
    """Serializing a tensor with a post-accumulate hook warns, unless the hook is marked as unserializable.

    The docstring of the mark speaks of a tensor that has a hook, of whichever kind.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    before = _warnings_of_saving(backend, x)
    backend.register_post_accumulate_grad_hook(x, backend.unserializable_hook(trace.saw("marked")))
    trace.expect_value("warnings with a marked hook", before, _warnings_of_saving(backend, x))

    handle = backend.register_post_accumulate_grad_hook(x, trace.saw("hook"))
    more = [_warnings_of_saving(backend, x) > before for _ in range(2)]
    trace.expect_value("more warnings with a hook, each time", [True, True], more)

    handle.remove()
    trace.expect_value("warnings after its removal", before, _warnings_of_saving(backend, x))


@rule(
    "tensor-hook.serialize.not-restored",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[UNSERIALIZABLE, observed("the warning says that hooks are not saved, and they are not")],
    needs=NEEDS,
    mutants=["hooks-serialized", "unmarked-hooks-serialized"],
    except_under={"subclass": "loading a tensor of a class of the user's own may need leave that no verb gives"},
)
def test_not_restored(backend: Backend, trace: Trace) -> None:
    """A loaded tensor has the values of the saved tensor and none of its hooks."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, backend.unserializable_hook(trace.saw("marked")))
    backend.register_hook(x, trace.saw("hook"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = backend.load(backend.save(x))
    backend.requires_grad_(loaded)  # no page says that it does
    backend.backward(backend.call(lambda x: backend.sum(x * 2), loaded))

    trace.expect_value("loaded", [1.0, 2.0], loaded)
    trace.expect()


def _warnings_of_saving(backend: Backend, tensor: object) -> int:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        backend.save(tensor)
    return len(caught)
