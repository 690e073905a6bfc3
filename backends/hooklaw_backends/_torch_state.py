"""The verbs for the state of modules and optimizers, as PyTorch has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

modules = torch.nn.modules.module


class State:
    """The part of `TorchEager` for modules' and optimizers' state."""

    def everywhere(self, handle: Any) -> Any:
        """Keep the handle of a global hook, so that it can be removed."""
        raise NotImplementedError

    def add_module(self, module: Any, name: str, child: Any) -> None:
        module.add_module(name, child)

    def register_buffer(self, module: Any, name: str, tensor: Any) -> None:
        module.register_buffer(name, tensor)

    def register_module_parameter_registration_hook(self, hook: Any) -> Any:
        return self.everywhere(modules.register_module_parameter_registration_hook(hook))

    def register_module_buffer_registration_hook(self, hook: Any) -> Any:
        return self.everywhere(modules.register_module_buffer_registration_hook(hook))

    def register_module_module_registration_hook(self, hook: Any) -> Any:
        return self.everywhere(modules.register_module_module_registration_hook(hook))

    def state_dict(self, owner: Any) -> dict[str, Any]:
        return owner.state_dict()

    def load_state_dict(self, owner: Any, state: Mapping[str, Any]) -> None:
        owner.load_state_dict(state)

    def register_state_dict_pre_hook(self, owner: Any, hook: Any, **options: bool) -> Any:
        return owner.register_state_dict_pre_hook(hook, **options)

    def register_state_dict_post_hook(self, owner: Any, hook: Any, **options: bool) -> Any:
        return owner.register_state_dict_post_hook(hook, **options)

    def register_load_state_dict_pre_hook(self, owner: Any, hook: Any, **options: bool) -> Any:
        return owner.register_load_state_dict_pre_hook(hook, **options)

    def register_load_state_dict_post_hook(self, owner: Any, hook: Any, **options: bool) -> Any:
        return owner.register_load_state_dict_post_hook(hook, **options)

    def sgd(self, parameters: Sequence[Any], *, lr: float, weight_decay: float = 0.0) -> Any:
        return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay)

    def step(self, optimizer: Any) -> None:
        optimizer.step()

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        optimizer.zero_grad(**options)

    def register_step_pre_hook(self, optimizer: Any, hook: Any) -> Any:
        return optimizer.register_step_pre_hook(hook)

    def register_step_post_hook(self, optimizer: Any, hook: Any) -> Any:
        return optimizer.register_step_post_hook(hook)

    def register_optimizer_step_pre_hook(self, hook: Any) -> Any:
        return self.everywhere(register_optimizer_step_pre_hook(hook))

    def register_optimizer_step_post_hook(self, hook: Any) -> Any:
        return self.everywhere(register_optimizer_step_post_hook(hook))
