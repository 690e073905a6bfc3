"""Mutants of the hooks around registration, saving and loading of a module's state."""

from copy import copy, deepcopy
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding


@calling(*verbs.REGISTRATION)
def registration_hooks_never_run(*_: Any) -> None:
    """Hooks on the registration of parameters, buffers and submodules never run."""


@calling(*verbs.REGISTRATION)
def return_of_a_registration_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> None:
    """The return value of a registration hook is ignored."""
    hook(*given)


@overriding("register_state_dict_pre_hook")
def state_dict_pre_hook_after_the_dict(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """A state_dict pre-hook of a module runs after the state_dict was made."""
    if options or not hasattr(owner, "forward"):
        return old(owner, hook, **options)

    def late(module: Any, _state: Any, prefix: str, _metadata: Any) -> None:
        hook(module, prefix, False)  # noqa: FBT003 - as torch calls it

    return self.register_state_dict_post_hook(owner, late)


@calling("register_state_dict_post_hook")
def state_dict_post_hook_given_a_copy(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """A state_dict post-hook gets a copy of the state_dict, so its changes are lost."""
    return hook(owner, copy(state), *rest)


@calling(*verbs.STATE_POST)
def return_of_a_state_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> None:
    """The return value of a state_dict or load_state_dict post-hook is ignored."""
    hook(*given)


class _KnowsSubmodules(Mutant):
    """A mutant that keeps all submodules."""

    def add_module(self, module: Any, name: str, child: Any) -> None:
        self.kept.append(child)
        super().add_module(module, name, child)


@calling(*verbs.STATE_POST, base=_KnowsSubmodules)
def state_hooks_of_the_outermost_module_alone(self: _KnowsSubmodules, hook: Hook, owner: Any, *rest: Any) -> Any:
    """The state_dict and load_state_dict post-hooks of a submodule never run."""
    return None if self.keeps(owner) else hook(owner, *rest)


@calling("register_load_state_dict_pre_hook")
def load_pre_hook_given_a_copy(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """A load_state_dict pre-hook gets a copy of the state_dict, so its changes are lost."""
    return hook(owner, copy(state), *rest)


@calling("register_load_state_dict_post_hook")
def load_post_hook_given_a_copy(self: Mutant, hook: Hook, owner: Any, *keys: Any) -> Any:
    """A load_state_dict post-hook gets copies of the lists of missing and unexpected keys, so its changes are lost."""
    return hook(owner, *deepcopy(keys))
