"""Mutants of sharded modules inside sharded modules, and of parameters that change between the passes."""

from typing import Any

import torch

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


@overriding("unshard")
def unshard_is_recursive(self: Mutant, old: Hook, module: Any) -> None:
    """unshard makes the parameters of submodules whole too."""
    for each in (module, *module.children()):
        old(each)


@overriding("reshard")
def reshard_is_recursive(self: Mutant, old: Hook, module: Any) -> None:
    """reshard leaves parts of the parameters of submodules too."""
    for each in (module, *module.children()):
        old(each)


@overriding("fully_shard")
def fully_shard_gathers_once(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Backward through a fully sharded module computes with the parameters that forward has gathered."""
    made = old(module, **options)
    contexts: list[Any] = []

    def enter(*_: Any) -> None:
        contexts.append(torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda saved: saved))
        contexts[-1].__enter__()

    made.register_forward_pre_hook(enter)
    made.register_forward_hook(lambda *_: contexts.pop().__exit__(None, None, None))
    return made


@overriding("register_fsdp_forward_method")
def forward_methods_of_any_module(self: Mutant, old: Hook, module: Any, name: str) -> None:
    """A registered method runs in another one, whether its module is sharded or not."""
    old(module, name)
    method = getattr(module, name)

    def run(*inputs: Any) -> Any:
        return method(*inputs)

    setattr(module, name, run)


@overriding("register_fsdp_forward_method")
def forward_methods_of_sharded_modules_alone(self: Mutant, old: Hook, module: Any, name: str) -> None:
    """Registering a forward method of a module that is not sharded is an error."""
    if not hasattr(module, "unshard"):
        raise RuntimeError("the module is not sharded")
    old(module, name)
