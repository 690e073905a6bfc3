"""State dict hooks of modules, around state_dict and load_state_dict."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import NUMBERS, OTHERS, removed_alone, weighted

PRE = docstring("torch.nn.Module.register_state_dict_pre_hook")
POST = docstring("torch.nn.Module.register_state_dict_post_hook")
LOAD_PRE = docstring("torch.nn.Module.register_load_state_dict_pre_hook")
LOAD_POST = docstring("torch.nn.Module.register_load_state_dict_post_hook")
NEEDS = [Capability.MODULES, Capability.STATE_DICT]


def nested(backend: Backend) -> dict[str, Any]:
    """Make a module with two others inside, one of which has another inside; return them by their prefixes."""
    outer, inner, innermost, last = (weighted(backend) for _ in range(4))
    backend.add_module(outer, "inner", inner)
    backend.add_module(inner, "innermost", innermost)
    backend.add_module(outer, "last", last)
    return {"": outer, "inner.": inner, "inner.innermost.": innermost, "last.": last}


@rule(
    "state-dict.pre-hook",
    level=Level.MUST,
    sources=[PRE.sentence(2, 3)],
    needs=NEEDS,
    mutants=[
        "state-dict-pre-hook-after-the-dict",
        "state-dict-pre-hook-after-the-own-entries",
        "state-dict-pre-hook-gets-no-keep-vars",
        "state-dict-pre-hook-of-a-submodule-gets-no-keep-vars",
        "later-state-dict-pre-hooks-after-the-dict",
        "state-dict-pre-hook-of-a-submodule-after-its-entries",
    ],
)
def test_pre_hook(backend: Backend, trace: Trace) -> None:
    """A state_dict pre-hook gets module, prefix and keep_vars before the dict is made, which contains what it adds."""

    def hook(given, prefix, keep_vars):
        trace.log("hook", [given is module, prefix, keep_vars])
        late = backend.module({"weight": backend.tensor([7.0, 8.0])}, lambda _module, x: x)
        backend.add_module(module, "late", late)
        backend.add_module(module, "later", late)

    def replace(given, *_: object):
        given.weight = backend.module({"weight": backend.tensor([7.0, 8.0])}, lambda _module, x: x).weight

    for options in ({}, {"keep_vars": True}, {"keep_vars": True}, {"keep_vars": False}, {}):
        module = weighted(backend)
        backend.register_state_dict_pre_hook(module, hook)
        backend.register_state_dict_pre_hook(module, replace)

        state = backend.state_dict(module, **options)
        trace.expect_value("keys", ["late.weight", "later.weight", "weight"], sorted(state))
        trace.expect_value("values", [[7.0, 8.0]] * 3, [*state.values()])
        for _ in range(2):
            trace.expect_value("values again", [[7.0, 8.0]] * 3, [*backend.state_dict(module, **options).values()])
        trace.expect(*[("hook", [True, "", options.get("keep_vars", False)])] * 3)

    outer, *modules = nested(backend).items()
    for prefix, each in modules:
        backend.register_state_dict_pre_hook(
            each, lambda given, _, keep_vars, prefix=prefix: (seen.append((keep_vars, prefix)), replace(given))[1]
        )
    for keep_vars in (True, False):
        seen: list[tuple[bool, str]] = []
        state = backend.state_dict(outer[1], keep_vars=keep_vars)
        trace.expect_value(
            "keep_vars in hooks of submodules that ran", [keep_vars] * len(seen), [ran[0] for ran in seen]
        )
        values = [backend.tolist(state[f"{prefix}weight"]) for _, prefix in seen]
        trace.expect_value("what these hooks replaced", [[7.0, 8.0]] * len(seen), values)


@rule(
    "state-dict.pre-hook.children",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the pre-hooks of each submodule run with its prefix")],
    needs=NEEDS,
    mutants=[
        "state-pre-hooks-of-the-outermost-module-alone",
        "state-hook-gets-the-last-name-as-prefix",
        "state-hooks-of-the-first-submodule-alone",
    ],
)
def test_pre_hooks_of_children(backend: Backend, trace: Trace) -> None:
    """The state_dict pre-hooks of a submodule run too, with its prefix."""
    modules = nested(backend)
    for module in modules.values():
        backend.register_state_dict_pre_hook(
            module, lambda given, prefix, _: trace.log(f"{prefix} {given is modules[prefix]}")
        )

    backend.state_dict(modules[""])

    trace.expect_in_any_order(*(f"{prefix} True" for prefix in modules))


@rule(
    "state-dict.post-hook",
    level=Level.MUST,
    sources=[POST.sentence(2, 3)],
    needs=NEEDS,
    mutants=[
        "state-dict-post-hook-given-a-copy",
        "state-dict-post-hook-given-a-copy-second-call",
        "state-dict-post-hook-of-a-submodule-given-a-copy",
        "state-dict-post-hook-given-a-copy-later",
        "state-dict-post-hook-can-only-add",
    ],
)
def test_post_hook(backend: Backend, trace: Trace) -> None:
    """A state_dict post-hook gets module, dict, prefix and metadata, and may change the dict in place."""

    def hook(given, state, prefix, metadata):
        trace.log("hook", [given is module, sorted({*state} - {"late"}), prefix, isinstance(metadata, dict)])
        state.update(more=7, weight=8)
        del state["bias"]

    module = backend.module({name: backend.tensor([3.0, 5.0]) for name in ("weight", "bias")}, lambda _module, x: x)
    backend.register_state_dict_post_hook(module, hook)
    backend.register_state_dict_post_hook(module, lambda _module, state, *_: state.update(late=9))
    for _ in range(2):
        state = backend.state_dict(module)

        trace.expect(("hook", [True, ["bias", "weight"], "", True]))
        trace.expect_value("what the hooks left", [["late", 9], ["more", 7], ["weight", 8]], sorted(state.items()))

    outer, inner, ran = weighted(backend), weighted(backend), list[bool]()
    backend.add_module(outer, "inner", inner)
    backend.register_state_dict_post_hook(inner, lambda _module, state, *_: (ran.append(True), state.update(more=7))[1])
    state = backend.state_dict(outer)
    trace.expect_value("has what the hook of a submodule added", [*ran], ["more" in state] * len(ran))


@rule(
    "state-dict.post-hook.return",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such a hook must return None")],
    needs=NEEDS,
    mutants=[
        "state-dict-post-hook-ignored",
        "state-dict-post-hook-ignored-later",
        "return-of-the-last-state-hook-alone-refused",
        "return-of-a-state-hook-of-a-submodule-ignored",
        "tensor-that-a-state-hook-returns-ignored",
    ],
)
def test_post_hook_returns(backend: Backend, trace: Trace) -> None:
    """A state_dict post-hook that returns anything but None is an error."""
    for result in (lambda state: state, lambda _: {}, lambda _: 0):
        for earlier in ([], [lambda *_: None]):
            module = weighted(backend)
            for hook in (*earlier, lambda _module, state, *_, result=result: result(state)):
                backend.register_state_dict_post_hook(module, hook)

            with trace.raises(ErrorKind.STATE_HOOK_RETURN):
                backend.state_dict(module)

    for result in (*OTHERS, True, "text", backend.tensor([7.0, 8.0])):
        for prefix in ("", "inner.", "inner.innermost.", "last."):
            modules = nested(backend)
            results = iter([None, result])
            for hook in (lambda *_: None, lambda *_, results=results: next(results), lambda *_: None):
                backend.register_state_dict_post_hook(modules[prefix], hook)
            backend.state_dict(modules[""])
            with trace.raises(ErrorKind.STATE_HOOK_RETURN):
                backend.state_dict(modules[""])


@rule(
    "state-dict.post-hook.children",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the post-hooks of each submodule run with its prefix")],
    needs=NEEDS,
    mutants=[
        "state-hooks-of-the-outermost-module-alone",
        "state-hook-gets-the-last-name-as-prefix",
        "state-hooks-of-the-first-submodule-alone",
    ],
)
def test_children(backend: Backend, trace: Trace) -> None:
    """The state_dict post-hooks of a submodule run too, with its prefix."""
    modules = nested(backend)
    for module in modules.values():
        backend.register_state_dict_post_hook(
            module, lambda given, _state, prefix, _: trace.log(f"{prefix} {given is modules[prefix]}")
        )

    backend.state_dict(modules[""])

    trace.expect_in_any_order(*(f"{prefix} True" for prefix in modules))


@rule(
    "state-dict.post-hook.children.order",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a submodule has added its state, and its post-hooks have run, before those of its parent")],
    needs=NEEDS,
    mutants=["state-hooks-of-the-outermost-module-alone"],
)
def test_children_first(backend: Backend, trace: Trace) -> None:
    """The state_dict post-hooks of a submodule may run before those of its parent."""
    modules = nested(backend)
    for module in modules.values():
        backend.register_state_dict_post_hook(
            module, lambda _module, _state, prefix, _: trace.log(f"hook of {prefix!r}")
        )

    backend.state_dict(modules[""])

    trace.expect_in_any_order(*(f"hook of {prefix!r}" for prefix in modules))
    for child, parent in (("inner.innermost.", "inner."), ("inner.", ""), ("last.", "")):
        trace.expect_before(f"hook of {child!r}", f"hook of {parent!r}")


def expect_removes(backend: Backend, trace: Trace, *kinds: Callable[..., Any]) -> None:
    """Expect the handles of hooks of some kinds, on two modules, to remove their own hook alone."""

    def round_trips():
        for owner in owners:
            backend.load_state_dict(owner, backend.state_dict(owner))

    owners = [weighted(backend) for _ in range(2)]
    places = {
        f"{kind} of {nr}": partial(register, owner)
        for nr, owner in enumerate(owners)
        for kind, register in enumerate(kinds)
    }
    removed_alone(trace, places, round_trips)


@rule(
    "state-dict.handles",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("these three registrations return a handle; only the docstring of the fourth names it")],
    needs=NEEDS,
    mutants=[
        "state-dict-pre-hook-handle-removes-nothing",
        "state-dict-post-hook-handle-removes-nothing",
        "load-pre-hook-handle-removes-nothing",
        "state-dict-post-hook-handle-removes-the-oldest",
        "state-dict-pre-hook-handle-removes-all-equal",
    ],
)
def test_handles(backend: Backend, trace: Trace) -> None:
    """The handle of a state_dict hook or a load_state_dict pre-hook of a module removes this hook, and no other.

    If the same function is registered once more, that is another hook.
    """
    kinds = (
        backend.register_state_dict_pre_hook,
        backend.register_state_dict_post_hook,
        backend.register_load_state_dict_pre_hook,
    )
    expect_removes(backend, trace, *kinds)


@rule(
    "load-state-dict.pre-hook",
    level=Level.MUST,
    sources=[LOAD_PRE.sentence(1, 2, 3)],
    needs=NEEDS,
    mutants=["load-pre-hook-after-loading", "load-pre-hook-after-the-submodules"],
)
def test_load_pre_hook(backend: Backend, trace: Trace) -> None:
    """A load_state_dict pre-hook runs before loading, with the module, the dict and the other arguments of loading."""

    def hook(given, state, prefix, metadata, *known: object):
        trace.log("hook", [given is module, sorted(state), prefix, isinstance(metadata, dict), *known])
        trace.log("weights", [backend.tolist(each.weight) for each in (module, inner)])

    module, inner = weighted(backend), weighted(backend)
    backend.add_module(module, "inner", inner)
    backend.register_load_state_dict_pre_hook(module, hook)
    backend.load_state_dict(module, {name: backend.tensor([7.0, 8.0]) for name in ("weight", "inner.weight")})

    seen = [True, ["inner.weight", "weight"], "", True, True, [], [], []]
    trace.expect(("hook", seen), ("weights", [[3.0, 5.0]] * 2))
    trace.expect_value("weights", [[7.0, 8.0]] * 2, [module.weight, inner.weight])


@rule(
    "load-state-dict.pre-hook.modify",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("what a hook changes in the dict is loaded; the docstring of an optimizer's hook says so")],
    needs=NEEDS,
    mutants=[
        "load-pre-hook-given-a-copy",
        "load-pre-hook-given-a-copy-second-call",
        "load-pre-hook-of-a-submodule-given-a-copy",
        "load-pre-hook-changes-the-own-entries-alone",
        "load-pre-hook-given-a-copy-later",
    ],
)
def test_load_pre_hook_renames(backend: Backend, trace: Trace) -> None:
    """A load_state_dict pre-hook can change the dict that is loaded in place, for example rename a key."""
    owner, inner, ran = weighted(backend), weighted(backend), list[list[float]]()
    for name in ("old", "older"):
        backend.register_load_state_dict_pre_hook(
            owner, lambda _, state, *_rest, name=name: state.update({"weight": state.pop(name, state.get("weight"))})
        )
    for name, numbers in (("old", [7.0, 8.0]), ("older", [9.0, 10.0]), ("old", [11.0, 12.0])):
        backend.load_state_dict(owner, {name: backend.tensor(numbers)})

        trace.expect_value("weight", numbers, owner.weight)

    def replace(_module, state, prefix, *_: object):
        ran.append([5.0, 6.0])
        state[f"{prefix}weight"] = backend.tensor([5.0, 6.0])

    backend.add_module(owner, "inner", inner)
    backend.register_load_state_dict_pre_hook(inner, replace)
    numbers = backend.tensor([1.0, 2.0])
    backend.load_state_dict(owner, {"old": numbers, "inner.weight": numbers})
    trace.expect_value("weight of a submodule whose hook ran", [*ran], [backend.tolist(inner.weight)] * len(ran))

    outer, inner = weighted(backend), weighted(backend)
    backend.add_module(outer, "inner", inner)
    backend.register_load_state_dict_pre_hook(
        outer, lambda _, state, *_rest: state.update({"inner.weight": state.pop("old")})
    )
    backend.load_state_dict(outer, {"weight": numbers, "old": numbers})
    trace.expect_value("weight of a submodule that the hook of another renames", [1.0, 2.0], inner.weight)


@rule(
    "load-state-dict.pre-hook.lists",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[LOAD_PRE, observed("the three lists are those of the load, which fails if strict and one has an entry")],
    needs=NEEDS,
    mutants=[
        "load-pre-hook-gets-lists-of-its-own",
        "load-pre-hook-of-a-submodule-gets-lists-of-its-own",
        "errors-of-a-load-pre-hook-of-a-submodule-ignored",
        "lists-that-a-load-pre-hook-changed-are-those-of-later-loads",
    ],
)
def test_load_pre_hook_lists(backend: Backend, trace: Trace) -> None:
    """What a load_state_dict pre-hook adds to the missing keys, unexpected keys or errors makes strict loading fail."""
    for prefix, place in product(("", "inner.", "inner.innermost.", "last."), range(3)):
        modules, ran = nested(backend), list[None]()
        state = backend.state_dict(modules[""])

        def hook(*given: Any, ran: list[None] = ran, place: int = place) -> None:
            given[-3:][place].extend(["added by a hook"] if len(ran) == 1 else [])
            ran.append(None)

        backend.register_load_state_dict_pre_hook(modules[prefix], hook)
        backend.load_state_dict(modules[""], state)
        with trace.raises(ErrorKind.STATE_KEYS) if ran else nullcontext():
            backend.load_state_dict(modules[""], state)
        backend.load_state_dict(modules[""], state)


@rule(
    "load-state-dict.pre-hook.children",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the pre-hooks of each submodule run with its prefix")],
    needs=NEEDS,
    mutants=[
        "state-pre-hooks-of-the-outermost-module-alone",
        "state-hook-gets-the-last-name-as-prefix",
        "state-hooks-of-the-first-submodule-alone",
    ],
)
def test_load_pre_hooks_of_children(backend: Backend, trace: Trace) -> None:
    """The load_state_dict pre-hooks of a submodule run too, with its prefix."""
    modules = nested(backend)
    for module in modules.values():
        backend.register_load_state_dict_pre_hook(
            module, lambda given, _state, prefix, *_: trace.log(f"{prefix} {given is modules[prefix]}")
        )

    backend.load_state_dict(modules[""], backend.state_dict(modules[""]))

    trace.expect_in_any_order(*(f"{prefix} True" for prefix in modules))


@rule(
    "load-state-dict.post-hook.after",
    level=Level.MUST,
    sources=[LOAD_POST.sentence(1)],
    needs=NEEDS,
    mutants=["load-post-hook-before-loading"],
)
def test_load_post_hook_after(backend: Backend, trace: Trace) -> None:
    """A load_state_dict post-hook of a module runs after its parameters got their values, in every load."""
    names = ("weight", "other", "third")
    owner = backend.module({name: backend.tensor([3.0, 5.0]) for name in names}, lambda _, x: x)
    backend.register_load_state_dict_post_hook(
        owner, lambda module, _: trace.log("values", [backend.tolist(getattr(module, name)) for name in names])
    )
    loads = [7.0, 8.0], [9.0, 10.0], [11.0, 12.0]
    for numbers in loads:
        backend.load_state_dict(owner, {name: backend.tensor(numbers) for name in names})

    trace.expect(*[("values", [numbers] * 3) for numbers in loads])

    for numbers in NUMBERS:
        owner = backend.module({"weight": backend.tensor(numbers) + 5}, lambda _, x: x)
        backend.register_load_state_dict_post_hook(owner, lambda module, _: trace.log("weight", module.weight))
        backend.load_state_dict(owner, {"weight": backend.tensor(numbers)})
        trace.expect(("weight", numbers))


@rule(
    "load-state-dict.post-hook",
    level=Level.MUST,
    sources=[LOAD_POST.sentence(2, 3, 4, 5, 6, 7)],
    needs=NEEDS,
    mutants=[
        "load-post-hook-given-a-copy",
        "load-post-hook-given-a-copy-second-call",
        "load-post-hook-of-a-submodule-given-a-copy",
        "load-post-hook-given-a-copy-later",
        "load-post-hook-gets-the-own-keys-alone",
        "added-unexpected-keys-ignored",
        "keys-that-a-load-post-hook-leaves-forgiven",
        "load-post-hook-gets-the-keys-of-earlier-loads",
        "keys-of-a-load-that-failed-make-later-ones-fail",
    ],
)
def test_load_post_hook(backend: Backend, trace: Trace) -> None:
    """A load_state_dict post-hook gets the missing and unexpected keys; strict loading fails if it leaves or adds any.

    Clearing out both lists, which are in a named tuple, avoids the error.
    """
    weight = backend.tensor([7.0, 8.0])

    def forgive(given, keys):
        trace.log("forgive", [given is module, sorted(keys.missing_keys), sorted(keys.unexpected_keys)])
        trace.expect_value("both lists", [missing, unexpected], [sorted(some) for some in keys])
        keys.missing_keys.clear()
        keys.unexpected_keys.clear()

    module = weighted(backend)
    backend.add_module(module, "inner", weighted(backend))
    missing, unexpected = ["inner.weight", "weight"], ["inner.more", "more"]
    backend.register_load_state_dict_post_hook(module, forgive)
    backend.load_state_dict(module, dict.fromkeys(unexpected, weight))
    trace.expect(("forgive", [True, missing, unexpected]))

    def clear(_, keys):
        keys.missing_keys.clear()
        keys.unexpected_keys.clear()

    outer, inner = weighted(backend), weighted(backend)
    backend.add_module(outer, "inner", inner)
    backend.register_load_state_dict_post_hook(inner, lambda *_: None)
    backend.register_load_state_dict_post_hook(inner, clear)
    for _ in range(2):
        backend.load_state_dict(outer, {"weight": weight, "inner.more": weight})

    for state, change in (
        ({"weight": weight}, lambda keys: keys.missing_keys.append("late")),
        ({"weight": weight}, lambda keys: keys.unexpected_keys.append("late")),
        ({"more": weight}, lambda keys: keys.missing_keys.clear()),
        ({"more": weight}, lambda keys: keys.unexpected_keys.clear()),
    ):
        strict, changes = weighted(backend), iter([change])
        backend.register_load_state_dict_post_hook(
            strict, lambda _, keys, changes=changes: next(changes, lambda _: None)(keys)
        )
        with trace.raises(ErrorKind.STATE_KEYS):
            backend.load_state_dict(strict, state)
        backend.load_state_dict(strict, {"weight": weight})


@rule(
    "load-state-dict.post-hook.handle",
    level=Level.MUST,
    sources=[LOAD_POST.sentence(8)],
    needs=NEEDS,
    mutants=[
        "state-dict-pre-hook-handle-removes-nothing",
        "load-post-hook-handle-removes-nothing",
        "load-post-hook-handle-removes-the-oldest",
        "load-post-hook-handle-removes-all-equal",
    ],
)
def test_load_post_hook_handle(backend: Backend, trace: Trace) -> None:
    """The handle of a load_state_dict post-hook removes this hook, and no other, for all later loads.

    If the same function is registered once more, that is another hook.
    """
    expect_removes(backend, trace, backend.register_load_state_dict_post_hook, backend.register_state_dict_pre_hook)


@rule(
    "load-state-dict.post-hook.return",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such a hook is not to return anything")],
    needs=NEEDS,
    mutants=[
        "load-post-hook-ignored",
        "load-post-hook-ignored-later",
        "return-of-the-last-load-hook-alone-refused",
        "load-post-hook-ignored-second-call",
        "return-of-a-load-hook-of-a-submodule-ignored",
        "tensor-that-a-load-hook-returns-ignored",
    ],
)
def test_load_post_hook_returns(backend: Backend, trace: Trace) -> None:
    """A load_state_dict post-hook that returns anything but None is an error."""
    for result in (lambda keys: keys, lambda _: (), lambda _: 0):
        for earlier in ([], [lambda *_: None]):
            module = weighted(backend)
            for hook in (*earlier, lambda _, keys, result=result: result(keys)):
                backend.register_load_state_dict_post_hook(module, hook)

            with trace.raises(ErrorKind.LOAD_HOOK_RETURN):
                backend.load_state_dict(module, {"weight": backend.tensor([7.0, 8.0])})

    for result in (*OTHERS, True, "text", backend.tensor([7.0, 8.0])):
        modules = nested(backend)
        results = iter([None, None, result])
        for hook in (lambda *_: None, lambda *_, results=results: next(results), lambda *_: None):
            backend.register_load_state_dict_post_hook(modules["inner."], hook)
        state = backend.state_dict(modules[""])
        for _ in range(2):
            backend.load_state_dict(modules[""], state)
        with trace.raises(ErrorKind.LOAD_HOOK_RETURN):
            backend.load_state_dict(modules[""], state)


@rule(
    "load-state-dict.wording",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the post-hooks of each submodule run too")],
    needs=NEEDS,
    mutants=["state-hooks-of-the-outermost-module-alone", "state-hooks-of-the-first-submodule-alone"],
)
def test_load_children(backend: Backend, trace: Trace) -> None:
    """The load_state_dict post-hooks of a submodule run too, with this submodule."""
    modules = nested(backend)
    for prefix, module in modules.items():
        backend.register_load_state_dict_post_hook(
            module, lambda given, _, prefix=prefix, module=module: trace.log(f"{prefix} {given is module}")
        )

    backend.load_state_dict(modules[""], backend.state_dict(modules[""]))

    trace.expect_in_any_order(*(f"{prefix} True" for prefix in modules))
