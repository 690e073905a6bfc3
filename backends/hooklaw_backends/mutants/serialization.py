"""Mutants that serialize a tensor's hooks, or forget them without a word."""

from typing import Any

from hooklaw_backends.mutants.base import Mutant
from hooklaw_backends.mutants.handles import hooks_of
from hooklaw_backends.torch_eager import Hook


class HooksDroppedInSilence(Mutant):
    """Serializing a tensor that has hooks warns nobody."""

    def save(self, tensor: Any) -> bytes:
        return super().save(tensor.detach().requires_grad_(tensor.requires_grad))


class UnserializableMarkIgnored(Mutant):
    """Serializing warns of hooks that are marked as unserializable too."""

    def unserializable_hook(self, hook: Hook) -> Hook:
        return hook


class HooksSerialized(Mutant):
    """A tensor that was loaded has the hooks of the one that was saved."""

    hooks: tuple[Hook, ...] = ()

    def save(self, tensor: Any) -> bytes:
        self.hooks = tuple(hooks_of(tensor).values())
        return super().save(tensor)

    def load(self, data: bytes) -> Any:
        tensor = super().load(data)
        for hook in self.hooks:
            tensor.register_hook(hook)
        return tensor
