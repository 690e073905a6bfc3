"""The reference backend's verbs about the state of modules and optimizers."""

from collections.abc import Callable, Mapping
from typing import Any

from hooklaw.backend.torchlike import TorchLike
from hooklaw.model._module import Module
from hooklaw.model._optimizer import SGD, every_optimizer
from hooklaw.model._registry import registration_hooks
from hooklaw.model._state import load_state, state_of
from hooklaw.model.tensor import Tensor

Hook = Callable[..., Any]


class StateVerbs(TorchLike):
    """Base class of `Reference`."""

    sgd = staticmethod(SGD)
    register_module_parameter_registration_hook = staticmethod(registration_hooks["parameter"].add)
    register_module_buffer_registration_hook = staticmethod(registration_hooks["buffer"].add)
    register_module_module_registration_hook = staticmethod(registration_hooks["module"].add)
    register_optimizer_step_pre_hook = staticmethod(every_optimizer["pre"].add)
    register_optimizer_step_post_hook = staticmethod(every_optimizer["post"].add)

    def add_module(self, module: Module, name: str, child: Module) -> None:
        module.register("module", name, child)

    def register_buffer(self, module: Module, name: str, tensor: Tensor) -> None:
        module.register("buffer", name, tensor)

    def state_dict(self, owner: Module | SGD) -> dict[str, Any]:
        return owner.state_dict() if isinstance(owner, SGD) else state_of(owner)

    def load_state_dict(self, owner: Module | SGD, state: Mapping[str, Any]) -> None:
        owner.load_state_dict(state) if isinstance(owner, SGD) else load_state(owner, state)

    def register_state_dict_pre_hook(self, owner: Module | SGD, hook: Hook, **options: bool) -> Any:
        return owner.state_hooks["save_pre"].add(hook, **options)

    def register_state_dict_post_hook(self, owner: Module | SGD, hook: Hook, **options: bool) -> Any:
        return owner.state_hooks["save_post"].add(hook, **options)

    def register_load_state_dict_pre_hook(self, owner: Module | SGD, hook: Hook, **options: bool) -> Any:
        return owner.state_hooks["load_pre"].add(hook, **options)

    def register_load_state_dict_post_hook(self, owner: Module | SGD, hook: Hook, **options: bool) -> Any:
        return owner.state_hooks["load_post"].add(hook, **options)

    def register_step_pre_hook(self, optimizer: SGD, hook: Hook) -> Any:
        return optimizer.step_hooks["pre"].add(hook)

    def register_step_post_hook(self, optimizer: SGD, hook: Hook) -> Any:
        return optimizer.step_hooks["post"].add(hook)
