"""State dict hooks of modules, around state_dict and load_state_dict."""

from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule

PRE = docstring("torch.nn.Module.register_state_dict_pre_hook")
POST = docstring("torch.nn.Module.register_state_dict_post_hook")
LOAD_PRE = docstring("torch.nn.Module.register_load_state_dict_pre_hook")
LOAD_POST = docstring("torch.nn.Module.register_load_state_dict_post_hook")
NEEDS = [Capability.MODULES, Capability.STATE_DICT]


def weighted(backend: Backend) -> Any:
    """Make a module with one weight."""
    return backend.module({"weight": backend.tensor([3.0, 5.0])}, lambda module, x: x * module.weight)


@rule(
    "state-dict.pre-hook",
    level=Level.MUST,
    sources=[PRE],
    needs=NEEDS,
    mutants=["state-dict-pre-hook-after-the-dict"],
)
def test_pre_hook(backend: Backend, trace: Trace) -> None:
    """A state_dict pre-hook gets module, prefix and keep_vars before the dict is made, which contains what it adds."""

    def hook(given, prefix, keep_vars):
        trace.log("hook", [given is module, prefix, keep_vars])
        backend.add_module(module, "late", weighted(backend))

    module = weighted(backend)
    backend.register_state_dict_pre_hook(module, hook)

    trace.expect_value("keys", ["late.weight", "weight"], sorted(backend.state_dict(module)))
    trace.expect(("hook", [True, "", False]))


@rule(
    "state-dict.post-hook",
    level=Level.MUST,
    sources=[POST],
    needs=NEEDS,
    mutants=["state-dict-post-hook-given-a-copy"],
)
def test_post_hook(backend: Backend, trace: Trace) -> None:
    """A state_dict post-hook gets module, dict, prefix and metadata, and may change the dict in place."""

    def hook(given, state, prefix, metadata):
        trace.log("hook", [given is module, sorted(state), prefix, isinstance(metadata, dict)])
        state["more"] = 7

    module = weighted(backend)
    backend.register_state_dict_post_hook(module, hook)
    state = backend.state_dict(module)

    trace.expect(("hook", [True, ["weight"], "", True]))
    trace.expect_value("what the hook added", 7, state.get("more"))


@rule(
    "state-dict.post-hook.return",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such a hook must return None")],
    needs=NEEDS,
    mutants=["return-of-a-state-hook-ignored"],
)
def test_post_hook_returns(backend: Backend, trace: Trace) -> None:
    """A state_dict post-hook that returns anything but None is an error."""
    module = weighted(backend)
    backend.register_state_dict_post_hook(module, lambda _module, state, *_: state)

    with trace.raises(ErrorKind.STATE_HOOK_RETURN):
        backend.state_dict(module)


@rule(
    "state-dict.post-hook.children",
    level=Level.MUST,
    sources=[POST],
    needs=NEEDS,
    mutants=["state-hooks-of-the-outermost-module-alone"],
)
def test_children(backend: Backend, trace: Trace) -> None:
    """The state_dict post-hooks of a child module run too, with its prefix, before those of its parent."""
    outer, inner = weighted(backend), weighted(backend)
    backend.add_module(outer, "inner", inner)
    for module in (outer, inner):
        backend.register_state_dict_post_hook(module, lambda _module, _state, prefix, _: trace.log("prefix", prefix))

    backend.state_dict(outer)

    trace.expect(("prefix", "inner."), ("prefix", ""))


@rule(
    "load-state-dict.pre-hook",
    level=Level.MUST,
    sources=[LOAD_PRE],
    needs=NEEDS,
    mutants=["load-pre-hook-given-a-copy"],
)
def test_load_pre_hook(backend: Backend, trace: Trace) -> None:
    """A load_state_dict pre-hook gets the module, the dict and the other arguments of loading, and may rename a key."""

    def hook(given, state, prefix, metadata, *known: object):
        trace.log("hook", [given is module, prefix, isinstance(metadata, dict), *known])
        state["weight"] = state.pop("old")

    module = weighted(backend)
    backend.register_load_state_dict_pre_hook(module, hook)
    backend.load_state_dict(module, {"old": backend.tensor([7.0, 8.0])})

    trace.expect(("hook", [True, "", True, True, [], [], []]))
    trace.expect_value("weight", [7.0, 8.0], module.weight)


@rule(
    "load-state-dict.post-hook",
    level=Level.MUST,
    sources=[LOAD_POST],
    needs=NEEDS,
    mutants=["load-post-hook-given-a-copy"],
)
def test_load_post_hook(backend: Backend, trace: Trace) -> None:
    """A load_state_dict post-hook gets the missing and unexpected keys; loading fails if it leaves any."""

    def forgive(given, keys):
        trace.log("forgive", [given is module, keys.missing_keys, keys.unexpected_keys])
        keys.missing_keys.clear()

    module = weighted(backend)
    handle = backend.register_load_state_dict_post_hook(module, forgive)
    backend.load_state_dict(module, {})
    trace.expect(("forgive", [True, ["weight"], []]))
    handle.remove()

    backend.register_load_state_dict_post_hook(module, lambda _, keys: keys.missing_keys.append("more"))
    with trace.raises(ErrorKind.STATE_KEYS):
        backend.load_state_dict(module, {"weight": backend.tensor([7.0, 8.0])})


@rule(
    "load-state-dict.post-hook.return",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such a hook is not to return anything")],
    needs=NEEDS,
    mutants=["return-of-a-state-hook-ignored"],
)
def test_load_post_hook_returns(backend: Backend, trace: Trace) -> None:
    """A load_state_dict post-hook that returns anything but None is an error."""
    module = weighted(backend)
    backend.register_load_state_dict_post_hook(module, lambda _, keys: keys)

    with trace.raises(ErrorKind.LOAD_HOOK_RETURN):
        backend.load_state_dict(module, {"weight": backend.tensor([7.0, 8.0])})


@rule(
    "load-state-dict.wording",
    level=Level.MAY,
    sources=[LOAD_POST],
    needs=NEEDS,
    mutants=["state-hooks-of-the-outermost-module-alone"],
)
def test_load_children(backend: Backend, trace: Trace) -> None:
    """load_state_dict on a module may also run the load_state_dict post-hooks of its submodules."""
    outer, inner = weighted(backend), weighted(backend)
    backend.add_module(outer, "inner", inner)
    for name, module in (("outer", outer), ("inner", inner)):
        backend.register_load_state_dict_post_hook(module, lambda *_, name=name: trace.log(name))

    backend.load_state_dict(outer, backend.state_dict(outer))

    trace.expect("inner", "outer")
