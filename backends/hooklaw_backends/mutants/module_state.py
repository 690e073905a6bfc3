"""Mutants of the hooks on what modules register, save and load."""

from copy import copy, deepcopy
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant


class RegistrationHooksNeverRun(Mutant):
    """Hooks on registration are taken, and never called."""

    def register_module_parameter_registration_hook(self, hook: Hook) -> Any:  # noqa: ARG002 - it is not called
        return Handle()

    def register_module_buffer_registration_hook(self, hook: Hook) -> Any:  # noqa: ARG002 - idem
        return Handle()

    def register_module_module_registration_hook(self, hook: Hook) -> Any:  # noqa: ARG002 - idem
        return Handle()


class ReturnOfARegistrationHookIgnored(Mutant):
    """What a hook on registration returns is dropped."""

    def register_module_parameter_registration_hook(self, hook: Hook) -> Any:
        return super().register_module_parameter_registration_hook(_silent(hook))

    def register_module_buffer_registration_hook(self, hook: Hook) -> Any:
        return super().register_module_buffer_registration_hook(_silent(hook))

    def register_module_module_registration_hook(self, hook: Hook) -> Any:
        return super().register_module_module_registration_hook(_silent(hook))


def _silent(hook: Hook) -> Hook:
    return lambda *given: (hook(*given), None)[1]


class StateDictPreHookAfterTheDict(Mutant):
    """A hook before the state is saved runs after that."""

    def register_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if options or not hasattr(owner, "forward"):
            return super().register_state_dict_pre_hook(owner, hook, **options)

        def late(module: Any, _state: Any, prefix: str, _metadata: Any) -> None:
            hook(module, prefix, False)  # noqa: FBT003 - as torch calls it

        return super().register_state_dict_post_hook(owner, late)


class StateDictPostHookGivenACopy(Mutant):
    """A hook after the state of a module was saved changes nothing in it."""

    def register_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_state_dict_post_hook(
            owner, lambda given, state, *rest: hook(given, copy(state), *rest), **options
        )


class ReturnOfAStateHookIgnored(Mutant):
    """What a hook on the state of a module returns is dropped."""

    def register_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_state_dict_post_hook(owner, _silent(hook), **options)

    def register_load_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_load_state_dict_post_hook(owner, _silent(hook), **options)


class StateHooksOfTheOutermostModuleAlone(Mutant):
    """Hooks on the state of a module inside another one do not run."""

    def __init__(self) -> None:
        super().__init__()
        self._inner: list[Any] = []

    def add_module(self, module: Any, name: str, child: Any) -> None:
        self._inner.append(child)
        super().add_module(module, name, child)

    def _outermost(self, hook: Hook) -> Hook:
        return lambda given, *rest: None if any(given is one for one in self._inner) else hook(given, *rest)

    def register_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_state_dict_post_hook(owner, self._outermost(hook), **options)

    def register_load_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_load_state_dict_post_hook(owner, self._outermost(hook), **options)


class LoadPreHookGivenACopy(Mutant):
    """A hook before the state of a module is loaded changes nothing in it."""

    def register_load_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_load_state_dict_pre_hook(
            owner, lambda given, state, *rest: hook(given, copy(state), *rest), **options
        )


class LoadPostHookGivenACopy(Mutant):
    """What a hook leaves of the missing and unexpected keys decides nothing."""

    def register_load_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_load_state_dict_post_hook(
            owner, lambda given, *keys: hook(given, *deepcopy(keys)), **options
        )
