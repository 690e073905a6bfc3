"""State dicts of modules: saving and loading, with the hooks around both."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from hooklaw.model import ops
from hooklaw.model._registry import Registry, called
from hooklaw.model.errors import LoadHookError, StateHookError, StateKeysError
from hooklaw.model.hooks import Hooks
from hooklaw.model.tensor import Tensor

StateDict = dict[str, Any]
KINDS = ("save_pre", "save_post", "load_pre", "load_post")


class Stateful:
    """Has hooks around saving and loading its state."""

    def __init__(self) -> None:
        super().__init__()
        self.state_hooks = {kind: Hooks() for kind in KINDS}


class Keys(NamedTuple):
    """Keys missing from a state, and keys that nothing is registered for; a hook may change both lists."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class StatefulRegistry(Stateful, Registry):
    """A registry whose parameters and buffers are its state."""

    def state_dict(self, *, keep_vars: bool = False) -> StateDict:
        """Return parameters and buffers by name, with dots for submodules; they share memory with the module.

        With keep_vars they are the parameters and buffers themselves.
        """
        state: StateDict = {}
        _save(self, state, "", keep_vars)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a state into the parameters and buffers, then raise StateKeysError if keys or shapes do not match."""
        keys, errors = Keys([], []), list[str]()
        _load(self, dict(state), "", keys, errors)
        pairs = zip(("missing", "unexpected"), keys, strict=True)
        said = [f"{word} {', '.join(names)}" for word, names in pairs if names]
        if said or errors:
            raise StateKeysError("; ".join([*said, *errors]))


def _save(module: StatefulRegistry, state: StateDict, prefix: str, keep_vars: bool) -> None:  # noqa: FBT001 - as a hook
    for hook in called(module.state_hooks["save_pre"]):
        hook(module, prefix, keep_vars)
    own = module.own_state().items()
    state.update({f"{prefix}{name}": tensor if keep_vars else tensor.detach() for name, tensor in own})
    for name, child in module.children().items():
        _save(child, state, f"{prefix}{name}.", keep_vars)
    for hook in called(module.state_hooks["save_post"]):
        if hook(module, state, prefix, {}) is not None:
            raise StateHookError("a state_dict post-hook must change the state in place and return None")


def _load(module: StatefulRegistry, state: StateDict, prefix: str, keys: Keys, errors: list[str]) -> None:
    """Load one module, then its submodules; `state` is a copy and has only keys with the prefix."""
    for hook in called(module.state_hooks["load_pre"]):
        hook(module, state, prefix, {}, True, *keys, errors)  # noqa: FBT003 - strict
    own = {f"{prefix}{name}": tensor for name, tensor in module.own_state().items()}
    for key, tensor in own.items():
        if key in state:
            errors += _copied(key, state[key], tensor)
        else:
            keys.missing_keys.append(key)
    inside = {f"{prefix}{name}.": child for name, child in module.children().items()}
    known = (*own, *inside)
    keys.unexpected_keys.extend(key for key in state if key.startswith(prefix) and _head(key, prefix) not in known)
    for start, child in inside.items():
        _load(child, {key: value for key, value in state.items() if key.startswith(start)}, start, keys, errors)
    for hook in called(module.state_hooks["load_post"]):
        if hook(module, keys) is not None:
            raise LoadHookError("a load_state_dict post-hook must change the keys in place and return None")


def _head(key: str, prefix: str) -> str:
    """Return the key up to the first dot after the prefix."""
    name, dot, _ = key.removeprefix(prefix).partition(".")
    return f"{prefix}{name}{dot}"


def _copied(key: str, value: Any, tensor: Tensor) -> list[str]:
    """Write a value into a tensor, in place; return the error if it does not fit."""
    if not isinstance(value, Tensor):
        return [f"{key} is not a tensor"]
    if value.shape != tensor.shape:
        return [f"{key} has shape {value.shape}, not {tensor.shape}"]
    tensor.data.write(ops.cast(value.detach(), tensor.dtype).data.values())
    return []
