"""Mutants of the hooks around registration, saving and loading of a module's state."""

from copy import copy, deepcopy
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, without_result


class _RegistrationHooks(Mutant):
    """A mutant that replaces each registration hook by an altered one."""

    def altered(self, hook: Hook) -> Hook:
        raise NotImplementedError

    def register_module_parameter_registration_hook(self, hook: Hook) -> Any:
        return super().register_module_parameter_registration_hook(self.altered(hook))

    def register_module_buffer_registration_hook(self, hook: Hook) -> Any:
        return super().register_module_buffer_registration_hook(self.altered(hook))

    def register_module_module_registration_hook(self, hook: Hook) -> Any:
        return super().register_module_module_registration_hook(self.altered(hook))


class RegistrationHooksNeverRun(_RegistrationHooks):
    """Hooks on the registration of parameters, buffers and submodules never run."""

    def altered(self, hook: Hook) -> Hook:  # noqa: ARG002 - it is not called
        return lambda *_: None


class ReturnOfARegistrationHookIgnored(_RegistrationHooks):
    """The return value of a registration hook is ignored."""

    def altered(self, hook: Hook) -> Hook:
        return without_result(hook)


class StateDictPreHookAfterTheDict(Mutant):
    """A state_dict pre-hook of a module runs after the state_dict was made."""

    def register_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if options or not hasattr(owner, "forward"):
            return super().register_state_dict_pre_hook(owner, hook, **options)

        def late(module: Any, _state: Any, prefix: str, _metadata: Any) -> None:
            hook(module, prefix, False)  # noqa: FBT003 - as torch calls it

        return super().register_state_dict_post_hook(owner, late)


class StateDictPostHookGivenACopy(Mutant):
    """A state_dict post-hook gets a copy of the state_dict, so its changes are lost."""

    def register_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_state_dict_post_hook(
            owner, lambda given, state, *rest: hook(given, copy(state), *rest), **options
        )


class _StatePostHooks(Mutant):
    """A mutant that replaces each post-hook on saving or loading a state by an altered one."""

    def altered(self, hook: Hook) -> Hook:
        raise NotImplementedError

    def register_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_state_dict_post_hook(owner, self.altered(hook), **options)

    def register_load_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_load_state_dict_post_hook(owner, self.altered(hook), **options)


class ReturnOfAStateHookIgnored(_StatePostHooks):
    """The return value of a state_dict or load_state_dict post-hook is ignored."""

    def altered(self, hook: Hook) -> Hook:
        return without_result(hook)


class StateHooksOfTheOutermostModuleAlone(_StatePostHooks):
    """The state_dict and load_state_dict post-hooks of a submodule never run."""

    def __init__(self) -> None:
        super().__init__()
        self._inner: list[Any] = []

    def add_module(self, module: Any, name: str, child: Any) -> None:
        self._inner.append(child)
        super().add_module(module, name, child)

    def altered(self, hook: Hook) -> Hook:
        return lambda given, *rest: None if any(given is inner for inner in self._inner) else hook(given, *rest)


class LoadPreHookGivenACopy(Mutant):
    """A load_state_dict pre-hook gets a copy of the state_dict, so its changes are lost."""

    def register_load_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_load_state_dict_pre_hook(
            owner, lambda given, state, *rest: hook(given, copy(state), *rest), **options
        )


class LoadPostHookGivenACopy(Mutant):
    """A load_state_dict post-hook gets copies of the lists of missing and unexpected keys, so its changes are lost."""

    def register_load_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_load_state_dict_post_hook(
            owner, lambda given, *keys: hook(given, *deepcopy(keys)), **options
        )
