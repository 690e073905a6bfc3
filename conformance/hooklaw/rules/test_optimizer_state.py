"""Hooks of an optimizer around saving and loading its state."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
from hooklaw.rules.hooks import fail_once, removed_alone
from hooklaw.rules.steps import sgd

PRE = docstring("torch.optim.Optimizer.register_state_dict_pre_hook")
POST = docstring("torch.optim.Optimizer.register_state_dict_post_hook")
LOAD_PRE = docstring("torch.optim.Optimizer.register_load_state_dict_pre_hook")
LOAD_POST = docstring("torch.optim.Optimizer.register_load_state_dict_post_hook")
NEEDS = [Capability.OPTIMIZERS, Capability.STATE_DICT]


def registrations(backend: Backend) -> list[Callable[..., Any]]:
    """Return the verbs that register hooks around saving and loading."""
    return [
        backend.register_state_dict_pre_hook,
        backend.register_state_dict_post_hook,
        backend.register_load_state_dict_pre_hook,
        backend.register_load_state_dict_post_hook,
    ]


def rate_in(state: Any) -> float:
    """Return the learning rate in a state."""
    return state["param_groups"][0]["lr"]


def with_rate(state: Any, rate: float) -> Any:
    """Return a copy of a state with another learning rate."""
    return {**state, "param_groups": [{**group, "lr": rate} for group in state["param_groups"]]}


def round_trip(backend: Backend, optimizer: Any) -> None:
    """Save the state and load it again."""
    backend.load_state_dict(optimizer, backend.state_dict(optimizer))


@rule(
    "optim.state-dict-hooks",
    level=Level.MUST,
    sources=[POST.sentence(2, 4, 5), LOAD_PRE.sentence(2, 4, 5, 7)],
    needs=NEEDS,
    mutants=[
        "state-dict-post-hook-ignored",
        "load-pre-hook-ignored",
        "returned-state-lost-on-later-hooks",
        "state-dict-post-hook-ignored-second-call",
        "load-pre-hook-ignored-second-call",
        "optimizer-state-returned-empty-container-lost",
        "empty-state-of-a-load-pre-hook-ignored",
        "state-of-a-load-pre-hook-merged",
        "new-entries-of-a-returned-state-lost",
        "only-the-groups-of-a-returned-state-count",
    ],
)
def test_returned(backend: Backend, trace: Trace) -> None:
    """A dict that an optimizer's state_dict post-hook or load_state_dict pre-hook returns replaces the given dict."""

    def look(_, state):
        trace.log("later hook", rate_in(state))

    def double(_, state):
        return with_rate(state, 2 * rate_in(state))

    optimizer = sgd(backend)
    for hook in (double, look, double, double):
        backend.register_state_dict_post_hook(optimizer, hook)
    for _ in range(3):
        trace.expect_value("saved rate", 8.0, rate_in(backend.state_dict(optimizer)))
        trace.expect(("later hook", 2.0))
        fail_once(
            trace, partial(backend.register_state_dict_post_hook, optimizer), lambda: backend.state_dict(optimizer)
        )

    loads = sgd(backend)
    for hook in (double, look, double, double):
        backend.register_load_state_dict_pre_hook(loads, hook)
    state = backend.state_dict(loads)
    for _ in range(3):
        backend.load_state_dict(loads, state)

        trace.expect(("later hook", 2.0))
        trace.expect_value("loaded rate", 8.0, rate_in(backend.state_dict(loads)))
        fail_once(trace, partial(backend.register_load_state_dict_pre_hook, loads), lambda: round_trip(backend, loads))

    empty = sgd(backend)
    backend.register_state_dict_post_hook(empty, lambda *_: {})
    trace.expect_value("empty state", {}, backend.state_dict(empty))

    other, others = {"state": {"step": 1}, "more": 7}, sgd(backend)
    whole = backend.state_dict(others)
    for returned in ({}, other, whole):
        backend.register_load_state_dict_pre_hook(others, lambda *_, returned=returned: {**returned})
        backend.register_load_state_dict_pre_hook(
            others, lambda _, state: trace.log("entries", [sorted(state), [*state.get("state", "")]])
        )
    backend.load_state_dict(others, whole)
    trace.expect(
        *[("entries", seen) for seen in ([[], []], [["more", "state"], ["step"]], [["param_groups", "state"], []])]
    )
    backend.register_state_dict_post_hook(others, lambda *_: {**other})
    trace.expect_value("other entries", other, backend.state_dict(others))


@rule(
    "optim.state-dict-hooks.saving",
    level=Level.MUST,
    sources=[PRE.sentence(1, 2, 3, 4, 5), POST.sentence(1, 2, 3)],
    needs=NEEDS,
    mutants=[
        "optimizer-pre-hook-after-saving",
        "later-optimizer-pre-hooks-after-saving",
        "state-hooks-get-another-optimizer",
    ],
)
def test_saving(backend: Backend, trace: Trace) -> None:
    """The state_dict pre-hooks of an optimizer get it before saving, and the post-hooks get it and the saved state."""
    optimizer = sgd(backend)
    unchanged = backend.state_dict(optimizer)

    def before(given, rate):
        trace.log("before", given is optimizer)
        backend.load_state_dict(optimizer, with_rate(unchanged, rate))

    for rate in (2.0, 3.0):
        backend.register_state_dict_pre_hook(optimizer, partial(before, rate=rate))
        backend.register_state_dict_post_hook(
            optimizer, lambda given, state: trace.log("after", [given is optimizer, rate_in(state)])
        )
    state = backend.state_dict(optimizer)

    trace.expect(*[("before", True)] * 2, *[("after", [True, 3.0])] * 2)
    trace.expect_value("saved rate", 3.0, rate_in(state))
    backend.state_dict(sgd(backend))
    trace.expect()


@rule(
    "optim.state-dict-hooks.loading",
    level=Level.MUST,
    sources=[LOAD_PRE.sentence(1, 2, 3, 6), LOAD_POST.sentence(1, 2, 3, 4, 5)],
    needs=NEEDS,
    mutants=[
        "optimizer-post-hook-before-loading",
        "prepended-post-hooks-before-loading",
        "state-hooks-get-another-optimizer",
        "load-post-hooks-shared-with-later-optimizers",
    ],
)
def test_loading(backend: Backend, trace: Trace) -> None:
    """The load_state_dict pre-hooks of an optimizer get it and the state before loading, the post-hooks it after."""
    optimizer = sgd(backend)
    faster = with_rate(backend.state_dict(optimizer), 2.0)

    def rate():
        return rate_in(backend.state_dict(optimizer))

    for prepend in (False, True):
        backend.register_load_state_dict_pre_hook(
            optimizer,
            lambda given, state: trace.log("before", [given is optimizer, rate_in(state), rate()]),
            prepend=prepend,
        )
        backend.register_load_state_dict_post_hook(
            optimizer, lambda given: trace.log("after", [given is optimizer, rate()]), prepend=prepend
        )
    backend.load_state_dict(optimizer, faster)

    trace.expect(*[("before", [True, 2.0, 1.0])] * 2, *[("after", [True, 2.0])] * 2)
    backend.load_state_dict(sgd(backend), faster)
    trace.expect()


@rule(
    "optim.state-dict-hooks.in-place",
    level=Level.MUST,
    sources=[POST.sentence(4, 5), LOAD_PRE.sentence(4, 7)],
    needs=NEEDS,
    mutants=[
        "state-dict-post-hook-given-a-copy",
        "load-pre-hook-given-a-copy",
        "state-dict-post-hook-given-a-copy-later",
        "load-pre-hook-given-a-copy-later",
        "state-dict-post-hook-given-a-copy-second-call",
        "load-pre-hook-given-a-copy-second-call",
        "entries-removed-from-a-state-come-back",
    ],
)
def test_in_place(backend: Backend, trace: Trace) -> None:
    """An optimizer's state_dict post-hook and load_state_dict pre-hook may change the dict in place."""

    def remove(_, state):
        del state["gone"]

    optimizer = sgd(backend)
    for hook in (lambda _, state: state.update(more=7, gone=9), lambda _, state: state.update(late=8), remove):
        backend.register_state_dict_post_hook(optimizer, hook)
    for _ in range(2):
        state = backend.state_dict(optimizer)
        trace.expect_value("what the post-hooks added", [7, 8], [state.get("more"), state.get("late")])
        trace.expect_value("has what one removed", expected=False, observed="gone" in state)

    for factor in (2.0, 3.0):
        backend.register_load_state_dict_pre_hook(
            optimizer, lambda _, state, factor=factor: state.update(with_rate(state, factor * rate_in(state)))
        )
    for hook in (lambda _, state: state.update(gone=9), remove):
        backend.register_load_state_dict_pre_hook(optimizer, hook)
    backend.register_load_state_dict_pre_hook(optimizer, lambda _, state: trace.log("has it", "gone" in state))
    for rate in (6.0, 36.0):
        round_trip(backend, optimizer)
        trace.expect(("has it", False))
        trace.expect_value("loaded rate", rate, rate_in(backend.state_dict(optimizer)))


@rule(
    "optim.state-dict-hooks.prepend",
    level=Level.MUST,
    sources=[PRE.sentence(7, 8), POST.sentence(7, 8), LOAD_PRE.sentence(9, 10), LOAD_POST.sentence(7, 8)],
    needs=NEEDS,
    mutants=[
        "state-dict-pre-hook-prepend-ignored",
        "state-dict-post-hook-prepend-ignored",
        "load-pre-hook-prepend-ignored",
        "load-post-hook-prepend-ignored",
        "prepended-state-hooks-in-order",
        "state-dict-pre-hook-lost-after-a-failure",
        "state-dict-post-hook-lost-after-a-failure",
        "load-pre-hook-lost-after-a-failure",
        "load-post-hook-lost-after-a-failure",
    ],
)
def test_prepend(backend: Backend, trace: Trace) -> None:
    """A state hook of an optimizer registered with prepend=True runs before all others of its kind, else after them."""
    for register in registrations(backend):
        optimizer = sgd(backend)
        register(optimizer, lambda *_: trace.log("first"))
        register(optimizer, lambda *_: trace.log("second"), prepend=False)
        register(optimizer, lambda *_: trace.log("prepended"), prepend=True)
        register(optimizer, lambda *_: trace.log("prepended later"), prepend=True)
        register(optimizer, lambda *_: trace.log("third"))
        register(optimizer, lambda *_: trace.log("prepended last"), prepend=True)

        for _ in range(2):
            round_trip(backend, optimizer)

            trace.expect("prepended last", "prepended later", "prepended", "first", "second", "third")
            fail_once(trace, partial(register, optimizer), lambda optimizer=optimizer: round_trip(backend, optimizer))


@rule(
    "optim.state-dict-hooks.handles",
    level=Level.MUST,
    sources=[PRE.sentence(9), POST.sentence(9), LOAD_PRE.sentence(11), LOAD_POST.sentence(9)],
    needs=NEEDS,
    mutants=[
        "state-dict-pre-hook-handle-removes-nothing",
        "state-dict-post-hook-handle-removes-nothing",
        "load-pre-hook-handle-removes-nothing",
        "load-post-hook-handle-removes-nothing",
        "state-dict-post-hook-handle-removes-the-oldest",
        "load-pre-hook-handle-removes-the-newest",
        "state-dict-pre-hook-handle-removes-those-of-other-kinds",
        "load-pre-hook-handle-removes-those-of-other-owners",
        "load-post-hook-handle-removes-all-equal",
        "handle-of-a-prepended-state-hook-removes-the-first",
        "handle-of-a-prepended-state-hook-removes-nothing",
    ],
)
def test_handles(backend: Backend, trace: Trace) -> None:
    """The handle of an optimizer's state hook of any kind, prepended or not, removes this hook, and no other.

    If the same function is registered once more, that is another hook.
    """
    optimizers = [sgd(backend) for _ in range(2)]
    places = {
        f"{kind} of {owner}, prepended: {prepend}": partial(register, optimizer, prepend=prepend)
        for owner, optimizer in enumerate(optimizers)
        for kind, register in enumerate(registrations(backend))
        for prepend in (False, True)
    }
    removed_alone(trace, places, lambda: [round_trip(backend, optimizer) for optimizer in optimizers])

    for register in registrations(backend):
        optimizer, labels = sgd(backend), ("first", "second", "third")
        hooks = {label: (lambda *_, label=label: trace.log(label)) for label in labels}
        _, second, _ = [register(optimizer, hooks[label], prepend=True) for label in labels]
        second.remove()
        round_trip(backend, optimizer)
        trace.expect("third", "first")


@rule(
    "optim.load-pre.shallow-copy",
    level=Level.MUST,
    sources=[LOAD_PRE.sentence(3)],
    needs=NEEDS,
    mutants=[
        "load-hook-given-the-callers-dict",
        "load-hook-given-a-deep-copy",
        "further-entries-of-a-loaded-state-lost",
    ],
)
def test_shallow_copy(backend: Backend, trace: Trace) -> None:
    """An optimizer's load_state_dict pre-hook gets a shallow copy of the caller's dict."""
    optimizer = sgd(backend)
    state = {**backend.state_dict(optimizer), "note": ["of the caller"]}

    def hook(_, given):
        trace.log("hook", [given is state, *(given.get(key) is state[key] for key in sorted(state))])
        given.pop("note", None)
        given["more"] = 7

    backend.register_load_state_dict_pre_hook(optimizer, hook)
    backend.load_state_dict(optimizer, state)

    trace.expect(("hook", [False, True, True, True]))
    trace.expect_value("keys of the caller's dict", ["note", "param_groups", "state"], sorted(state))
