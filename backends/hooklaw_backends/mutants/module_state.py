"""Mutants of the hooks around registration, saving and loading of a module's state."""

from copy import copy, deepcopy
from itertools import permutations
from types import SimpleNamespace
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.shared import Handle, KnowsReplacements, handle_of


@calling(*verbs.REGISTRATION)
def none_of_a_registration_hook_is_a_replacement(self: Mutant, hook: Hook, module: Any, name: str, value: Any) -> Any:
    """If a registration hook returns None, zeros or an empty module are registered."""
    result = hook(module, name, value)
    if result is not None:
        return result
    return self.zeros_like(value) if self.is_tensor(value) else self.module({}, lambda _module, x: x)


@calling(*verbs.REGISTRATION, base=KnowsReplacements)
def none_of_a_registration_hook_restores_the_value(
    self: KnowsReplacements, hook: Hook, module: Any, name: str, value: Any
) -> Any:
    """If a registration hook returns None, the value from before the hook that ran last is registered."""
    result = self.noted(hook(module, name, value), (value,))
    return next(iter(self.replaced_by((value,)) or ()), None) if result is None else result


@calling(*verbs.REGISTRATION)
def registration_hook_gets_no_module(self: Mutant, hook: Hook, module: Any, *given: Any) -> Any:
    """A registration hook gets None in place of the module."""
    return hook(None, *given)


@overriding("register_state_dict_pre_hook")
def state_dict_pre_hook_after_the_dict(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """A state_dict pre-hook of a module runs after the state_dict was made."""
    if options or not hasattr(owner, "forward"):
        return old(owner, hook, **options)

    def late(module: Any, _state: Any, prefix: str, _metadata: Any) -> None:
        hook(module, prefix, False)  # noqa: FBT003 - as torch calls it

    return self.register_state_dict_post_hook(owner, late)


class LaterStateDictPreHooksAfterTheDict(Mutant):
    """Of the state_dict pre-hooks of a module only the first runs before the state_dict is made."""

    def register_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if not hasattr(owner, "forward") or not self.keeps(owner):
            self.kept.append(owner)
            return super().register_state_dict_pre_hook(owner, hook, **options)
        return _after_the_entries(self, super().register_state_dict_pre_hook, owner, hook)


def _after_the_entries(mutant: Mutant, old: Hook, owner: Any, hook: Hook) -> Handle:
    """Register a state_dict pre-hook that runs once the entries of its module are in the dict."""
    given: list[Any] = []

    def late(*_: Any) -> None:
        hook(*given.pop())

    early = old(owner, lambda *these: given.append(these))
    return handle_of([early, mutant.register_state_dict_post_hook(owner, late)])


class StateDictPreHookAfterTheOwnEntries(Mutant):
    """A state_dict pre-hook runs once the module's own entries are in the dict, before those of its submodules."""

    own: dict[str, Any] | None = None
    peeks = False

    def register_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if options or not hasattr(owner, "forward"):
            return super().register_state_dict_pre_hook(owner, hook, **options)

        def late(module: Any, *rest: Any) -> None:
            if not self.peeks:
                self.peeks = True
                self.own = {name: value for name, value in self.state_dict(module).items() if "." not in name}
                self.peeks = False
                hook(module, *rest)

        return super().register_state_dict_pre_hook(owner, late)

    def state_dict(self, owner: Any, **options: bool) -> dict[str, Any]:
        state = super().state_dict(owner, **options)
        if self.own is not None and not self.peeks:
            state.update(self.own)
            self.own = None
        return state


@calling("register_state_dict_post_hook")
def state_dict_post_hook_can_only_add(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """What a state_dict post-hook adds to the state_dict stays, but it can neither replace nor remove an entry."""
    before = dict(state)
    result = hook(owner, state, *rest)
    state.update(before)
    return result


class _KnowsSubmodules(Mutant):
    """A mutant that keeps all submodules."""

    def add_module(self, module: Any, name: str, child: Any) -> None:
        self.kept.append(child)
        super().add_module(module, name, child)


@calling(*verbs.STATE_POST, base=_KnowsSubmodules)
def state_hooks_of_the_outermost_module_alone(self: _KnowsSubmodules, hook: Hook, owner: Any, *rest: Any) -> Any:
    """The state_dict and load_state_dict post-hooks of a submodule never run."""
    return None if self.keeps(owner) else hook(owner, *rest)


@calling(*verbs.STATE_PRE, base=_KnowsSubmodules)
def state_pre_hooks_of_the_outermost_module_alone(self: _KnowsSubmodules, hook: Hook, owner: Any, *rest: Any) -> Any:
    """The state_dict and load_state_dict pre-hooks of a submodule never run."""
    return None if self.keeps(owner) else hook(owner, *rest)


@calling(*verbs.STATE)
def state_hook_gets_the_last_name_as_prefix(self: Mutant, hook: Hook, *given: Any) -> Any:
    """The prefix that a state_dict or load_state_dict hook gets has the submodule's own name alone."""

    def shortened(value: Any) -> Any:
        return f"{value.split('.')[-2]}." if isinstance(value, str) and value.endswith(".") else value

    return hook(*map(shortened, given))


@overriding("register_load_state_dict_pre_hook")
def load_pre_hook_after_loading(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """A load_state_dict pre-hook of a module runs after the state was loaded."""
    if not hasattr(owner, "forward"):
        return old(owner, hook, **options)
    seen: list[Any] = []
    old(owner, lambda _, *given: seen.append(given))
    return self.register_load_state_dict_post_hook(owner, lambda module, _: (hook(module, *seen.pop()), None)[1])


@calling("register_load_state_dict_post_hook")
def added_unexpected_keys_ignored(self: Mutant, hook: Hook, owner: Any, *keys: Any) -> Any:
    """What a load_state_dict post-hook adds to the unexpected keys is ignored."""
    before = [len(some.unexpected_keys) for some in keys]
    result = hook(owner, *keys)
    for some, length in zip(keys, before, strict=True):
        del some.unexpected_keys[length:]
    return result


@calling("register_load_state_dict_post_hook")
def load_post_hook_gets_the_own_keys_alone(self: Mutant, hook: Hook, owner: Any, *keys: Any) -> Any:
    """A load_state_dict post-hook does not get the keys of submodules; they are missing or unexpected all the same."""
    lists = [some for both in keys for some in (both.missing_keys, both.unexpected_keys)]
    inner = [[key for key in some if "." in key] for some in lists]
    for some in lists:
        some[:] = [key for key in some if "." not in key]
    result = hook(owner, *keys)
    for some, more in zip(lists, inner, strict=True):
        some.extend(more)
    return result


@calling("register_load_state_dict_post_hook")
def keys_that_a_load_post_hook_leaves_forgiven(self: Mutant, hook: Hook, owner: Any, *keys: Any) -> Any:
    """If a load_state_dict post-hook runs, keys that were missing or unexpected before it are no error."""
    lists = [some for both in keys for some in (both.missing_keys, both.unexpected_keys)]
    before = [list(some) for some in lists]
    result = hook(owner, *keys)
    for some, known in zip(lists, before, strict=True):
        some[:] = [key for key in some if key not in known]
    return result


@calling("register_load_state_dict_pre_hook")
def load_pre_hook_gets_lists_of_its_own(self: Mutant, hook: Hook, owner: Any, *given: Any) -> Any:
    """What a load_state_dict pre-hook adds to the lists of keys and errors is ignored."""
    return hook(owner, *(list(value) if isinstance(value, list) else value for value in given))


class LoadPostHookBeforeLoading(Mutant):
    """A load_state_dict post-hook of a module runs before the state is loaded, with no keys."""

    def register_load_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if not hasattr(owner, "forward"):
            return super().register_load_state_dict_post_hook(owner, hook, **options)
        keys = SimpleNamespace(missing_keys=[], unexpected_keys=[])
        return self.register_load_state_dict_pre_hook(owner, lambda module, *_: hook(module, keys))


@calling("register_state_dict_pre_hook")
def state_dict_pre_hook_gets_no_keep_vars(self: Mutant, hook: Hook, owner: Any, *given: Any) -> Any:
    """The keep_vars that a state_dict pre-hook gets is False, whatever was asked for."""
    return hook(owner, *(False if isinstance(value, bool) else value for value in given))


class _KnowsSiblings(Mutant):
    """A mutant that keeps the submodules that are not the first of their module."""

    parents = fresh(list[Any])

    def add_module(self, module: Any, name: str, child: Any) -> None:
        if any(module is parent for parent in self.parents):
            self.kept.append(child)
        self.parents.append(module)
        super().add_module(module, name, child)


@calling(*verbs.STATE, base=_KnowsSiblings)
def state_hooks_of_the_first_submodule_alone(self: _KnowsSiblings, hook: Hook, owner: Any, *rest: Any) -> Any:
    """The state_dict and load_state_dict hooks of a submodule run only if it is the first of its module."""
    return None if self.keeps(owner) else hook(owner, *rest)


def _by_copies(hook: Hook) -> Hook:
    return lambda owner, *keys: hook(owner, *deepcopy(keys))


@calling("register_load_state_dict_post_hook", base=_KnowsSubmodules)
def load_post_hook_of_a_submodule_given_a_copy(self: _KnowsSubmodules, hook: Hook, owner: Any, *keys: Any) -> Any:
    """A load_state_dict post-hook of a submodule gets copies of the lists of keys."""
    return (_by_copies(hook) if self.keeps(owner) else hook)(owner, *keys)


def _last_return_alone_refused(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    self.kept.append((owner, hook))

    def run(*given: Any) -> Any:
        result = hook(*given)
        last = [other for of, other in self.kept if of is owner][-1]
        return result if last is hook else None

    return old(owner, run, **options)


@overriding("register_load_state_dict_post_hook")
def return_of_the_last_load_hook_alone_refused(*given: Any, **options: bool) -> Any:
    """Of several load_state_dict post-hooks of a module only what the last returns is an error."""
    return _last_return_alone_refused(*given, **options)


@overriding("register_state_dict_post_hook")
def return_of_the_last_state_hook_alone_refused(*given: Any, **options: bool) -> Any:
    """Of several state_dict post-hooks of a module only what the last returns is an error."""
    return _last_return_alone_refused(*given, **options)


def _of_a_submodule_ignored(self: Mutant, hook: Hook, owner: Any, *rest: Any) -> Any:
    result = hook(owner, *rest)
    return None if self.keeps(owner) else result


@calling("register_load_state_dict_post_hook", base=_KnowsSubmodules)
def return_of_a_load_hook_of_a_submodule_ignored(*given: Any) -> Any:
    """What a load_state_dict post-hook of a submodule returns is ignored."""
    return _of_a_submodule_ignored(*given)


@calling("register_state_dict_post_hook", base=_KnowsSubmodules)
def return_of_a_state_hook_of_a_submodule_ignored(*given: Any) -> Any:
    """What a state_dict post-hook of a submodule returns is ignored."""
    return _of_a_submodule_ignored(*given)


def _tensor_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    result = hook(*given)
    return None if self.is_tensor(result) else result


@calling("register_load_state_dict_post_hook")
def tensor_that_a_load_hook_returns_ignored(*given: Any) -> Any:
    """A load_state_dict post-hook may return a tensor, which is ignored."""
    return _tensor_ignored(*given)


@calling("register_state_dict_post_hook")
def tensor_that_a_state_hook_returns_ignored(*given: Any) -> Any:
    """A state_dict post-hook may return a tensor, which is ignored."""
    return _tensor_ignored(*given)


@calling("register_state_dict_pre_hook", base=_KnowsSubmodules)
def state_dict_pre_hook_of_a_submodule_gets_no_keep_vars(self: _KnowsSubmodules, hook: Hook, *given: Any) -> Any:
    """The keep_vars that a state_dict pre-hook of a submodule gets is False, whatever was asked for."""
    owner, *rest = given
    return hook(owner, *(False if isinstance(value, bool) and self.keeps(owner) else value for value in rest))


def _running_for(own: str, other: str) -> type[Mutant]:
    """Return a mutant whose registration hooks of a kind run for another kind, too."""

    def register(self: Mutant, old: Hook, hook: Hook) -> Any:
        return handle_of([old(hook), getattr(self, f"register_module_{other}_registration_hook")(hook)])

    return overriding(f"register_module_{own}_registration_hook")(register)


vars().update(
    named(
        f"{own}-registration-hook-runs-for-{other}s",
        f"a {own} registration hook runs for {other}s too",
        ("registration-hook",),
        _running_for(own, other),
    )
    for own, other in permutations(("parameter", "buffer", "module"), 2)
)


@calling(*verbs.REGISTRATION)
def falsy_return_of_a_registration_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A tensor whose only element is 0 is ignored if a registration hook returns it."""
    result = hook(*given)
    return None if self.is_tensor(result) and self.tolist(result) in (0.0, [0.0]) else result


def _by_a_copy(hook: Hook) -> Hook:
    return lambda owner, state, *rest: hook(owner, copy(state), *rest)


def _of_a_submodule_given_a_copy(self: Mutant, hook: Hook, owner: Any, *given: Any) -> Any:
    return (_by_a_copy(hook) if self.keeps(owner) else hook)(owner, *given)


@calling("register_state_dict_post_hook", base=_KnowsSubmodules)
def state_dict_post_hook_of_a_submodule_given_a_copy(*given: Any) -> Any:
    """A state_dict post-hook of a submodule gets a copy of the state_dict."""
    return _of_a_submodule_given_a_copy(*given)


@calling("register_load_state_dict_pre_hook", base=_KnowsSubmodules)
def load_pre_hook_of_a_submodule_given_a_copy(*given: Any) -> Any:
    """A load_state_dict pre-hook of a submodule gets a copy of the state_dict."""
    return _of_a_submodule_given_a_copy(*given)


@overriding("register_state_dict_pre_hook", base=_KnowsSubmodules)
def state_dict_pre_hook_of_a_submodule_after_its_entries(
    self: _KnowsSubmodules, old: Hook, owner: Any, hook: Hook, **options: bool
) -> Any:
    """A state_dict pre-hook of a submodule runs once the submodule's entries are in the dict."""
    return _after_the_entries(self, old, owner, hook) if self.keeps(owner) else old(owner, hook, **options)


@calling("register_load_state_dict_pre_hook", base=_KnowsSubmodules)
def load_pre_hook_of_a_submodule_gets_lists_of_its_own(
    self: _KnowsSubmodules, hook: Hook, owner: Any, *given: Any
) -> Any:
    """What a load_state_dict pre-hook of a submodule adds to the lists of keys and errors is ignored."""
    is_wrong = self.keeps(owner)
    return hook(owner, *(list(value) if is_wrong and isinstance(value, list) else value for value in given))


@calling("register_load_state_dict_pre_hook", base=_KnowsSubmodules)
def errors_of_a_load_pre_hook_of_a_submodule_ignored(
    self: _KnowsSubmodules, hook: Hook, owner: Any, *given: Any
) -> Any:
    """What a load_state_dict pre-hook of a submodule adds to the errors is ignored."""
    return hook(owner, *given[:-1], list(given[-1]) if self.keeps(owner) else given[-1])


@calling("register_load_state_dict_pre_hook")
def load_pre_hook_changes_the_own_entries_alone(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """What a load_state_dict pre-hook changes in the entries of submodules is not loaded."""
    before = copy(state)
    result = hook(owner, state, *rest)
    of_submodules = [key for key in (*state, *before) if rest and "." in key.removeprefix(rest[0])]
    for key in of_submodules:
        state.pop(key, None)
    state.update({key: before[key] for key in of_submodules if key in before})
    return result


class LoadPreHookAfterTheSubmodules(Mutant):
    """A load_state_dict pre-hook of a module runs once its submodules, if they have no hooks, are loaded."""

    children = fresh(list[tuple[Any, str, Any]])

    def add_module(self, module: Any, name: str, child: Any) -> None:
        self.children.append((module, f"{name}.", child))
        super().add_module(module, name, child)

    def register_load_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        def late(module: Any, state: Any, *rest: Any) -> Any:
            for of, name, child in self.children:
                if of is module and not self.keeps(child):
                    given = {key: value for key, value in state.items() if key.startswith(f"{rest[0]}{name}")}
                    own = {key.removeprefix(f"{rest[0]}{name}"): value for key, value in given.items()}
                    if own.keys() == self.state_dict(child).keys():
                        self.load_state_dict(child, own)
            return hook(module, state, *rest)

        self.kept.append(owner)
        return super().register_load_state_dict_pre_hook(owner, late, **options)

    def register_load_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        self.kept.append(owner)
        return super().register_load_state_dict_post_hook(owner, hook, **options)


class KeysOfALoadThatFailedMakeLaterOnesFail(Mutant):
    """Once missing or unexpected keys made a load of a module fail, all its later loads fail."""

    def load_state_dict(self, owner: Any, state: Any) -> None:
        refused = tuple(self.errors.get(ErrorKind.STATE_KEYS, (RuntimeError,)))
        if self.keeps(owner):
            raise refused[0]("keys of an earlier load")
        try:
            super().load_state_dict(owner, state)
        except refused:
            self.kept.append(owner)
            raise


def _with_those_before(hook: Hook, lists_of: Hook) -> Hook:
    """Return a hook that finds in its lists what they had in its earlier calls."""
    before: dict[int, list[Any]] = {}

    def run(owner: Any, *given: Any) -> Any:
        for place, some in enumerate(lists_of(*given)):
            some += [each for each in before.get(place, []) if each not in some]
            before[place] = [*some]
        return hook(owner, *given)

    return run


@altering("register_load_state_dict_post_hook")
def load_post_hook_gets_the_keys_of_earlier_loads(_self: Mutant, _owner: Any, hook: Hook) -> Hook:
    """A load_state_dict post-hook of a module gets the keys of all loads so far."""
    return _with_those_before(
        hook, lambda *keys: [some for both in keys for some in (both.missing_keys, both.unexpected_keys)]
    )


@calling("register_load_state_dict_pre_hook")
def lists_that_a_load_pre_hook_changed_are_those_of_later_loads(
    self: Mutant, hook: Hook, owner: Any, *given: Any
) -> Any:
    """What a load_state_dict pre-hook adds to the lists of keys and errors is there in later loads, too."""
    lists = [value for value in given if isinstance(value, list)]
    added = next((kept for of, kept in self.kept if of is owner), None)
    if added is None:
        self.kept.append((owner, added := [[] for _ in lists]))
    for some, before in zip(lists, added, strict=True):
        some.extend(before)
    result = hook(owner, *given)
    for some, before in zip(lists, added, strict=True):
        before[:] = some
    return result
