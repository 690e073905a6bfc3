"""The code of instructions about what modules register, about states, and about optimizers."""

from hooklaw.fuzz.emit._hooks import HookPlace, Lines, put
from hooklaw.fuzz.emit._script import FORMS, Script, Step, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.state import MORE, another, rates_in

PARAMETERS = 'param_groups[0]["params"]'


@form
def registration_hook(script: Script, instruction: Instruction) -> Step:
    """Put a hook on all registrations of a kind."""
    kind, action = instruction.how
    register = f"torch.nn.modules.module.register_module_{kind}_registration_hook({{}})"
    value = "child" if kind == "module" else kind
    seen = f"{value}.weight" if kind == "module" else value
    place = HookPlace(
        instruction.made[0], register, f"module, name, {value}", f"{seen}, name", value, many=False, optional=False
    )

    def instead(_: Script, __: HookPlace) -> list[str]:
        return [f"return {''.join(instruction.used)}"]

    return put(script, instruction, place, action, more={"instead": instead})


def _of_optimizer(script: Script, name: str) -> bool:
    maker = script.known.makers.get(name)
    return maker is not None and maker.op == "sgd"


def _shown(script: Script, owner: str, state: str) -> str:
    """Return what is shown of a state."""
    if not _of_optimizer(script, owner):
        return state
    return f"list({state}), {script.include(rates_in)}({state})"


@form
def state_dict(script: Script, instruction: Instruction) -> Step:
    """Take a state."""
    owner, name = instruction.used[0], instruction.made[0]
    return Step(f"{owner}.state_dict()", name, after=f'saw("state", "{name}", {_shown(script, owner, name)})')


@form
def load_state_dict(script: Script, instruction: Instruction) -> Step:
    """Load a state."""
    owner, state = instruction.used
    now = f'{owner}.param_groups[0]["lr"]' if _of_optimizer(script, owner) else f"{owner}.weight"
    shown = f'saw("load", "{owner}", {_shown(script, owner, state)}, {now})'
    return Step(f"{owner}.load_state_dict({state})", after=shown)


OF_MODULES = {
    "state_dict_pre": ("prefix, keep_vars", "keep_vars, prefix", ""),
    "state_dict_post": ("state, prefix, metadata", "state, prefix", "state"),
    "load_state_dict_pre": (
        "state, prefix, metadata, strict, missing_keys, unexpected_keys, errors",
        "state, prefix, missing_keys, unexpected_keys",
        "state",
    ),
    "load_state_dict_post": ("keys", "*keys", "keys"),
}
"""What hooks around the state of a module are given besides it, what they note, and what they may change."""


@form
def state_hook(script: Script, instruction: Instruction) -> Step:
    """Put a hook around the saving or the loading of a state."""
    kind, action, options = instruction.how
    owner, name = instruction.used[0], instruction.made[0]
    named = "".join(f", {option}=True" for option in options)
    register = f"{owner}.register_{kind}_hook({{}}{named})"
    place = _place_of_optimizer(script, kind, name, register) if _of_optimizer(script, owner) else None
    if place is None:
        given, seen, changed = OF_MODULES[kind]
        place = HookPlace(name, register, f"module, {given}", seen, changed or "None", many=False)
    return put(script, instruction, place, action, more=ACTIONS_ON_STATES)


def _place_of_optimizer(script: Script, kind: str, name: str, register: str) -> HookPlace:
    if kind in ("state_dict_pre", "load_state_dict_post"):
        return HookPlace(name, register, "optimizer", 'optimizer.param_groups[0]["lr"]', "None", many=False)
    seen = f"list(state), {script.include(rates_in)}(state)"
    return HookPlace(name, register, "optimizer, state", seen, "state", many=False)


def _key(place: HookPlace) -> str:
    return f'f"{{prefix}}{MORE}"' if "prefix" in place.parameters else f'"{MORE}"'


def _add(_: Script, place: HookPlace) -> list[str]:
    if place.replaced == "state":
        return [f"state[{_key(place)}] = 1.0"]
    return [f"keys.missing_keys.append({_key(place)})"] if place.replaced == "keys" else []


def _clear(_: Script, place: HookPlace) -> list[str]:
    if place.replaced == "state":
        return ["state.clear()"]
    return ["keys.missing_keys.clear()", "keys.unexpected_keys.clear()"] if place.replaced == "keys" else []


def _another(script: Script, place: HookPlace) -> list[str]:
    if place.replaced != "state":
        return []
    return [f"return {script.include(another)}(state)"]


ACTIONS_ON_STATES: dict[str, Lines] = {"add": _add, "clear": _clear, "another": _another}


@form
def sgd(_: Script, instruction: Instruction) -> Step:
    """Make an optimizer."""
    rate, decay = instruction.how
    more = f", weight_decay={decay!r}" if decay else ""
    return Step(f"torch.optim.SGD([{', '.join(instruction.used)}], lr={rate!r}{more})", instruction.made[0])


@form
def step_hook(script: Script, instruction: Instruction) -> Step:
    """Put a hook around the steps of an optimizer, or of all."""
    kind, action = instruction.how
    register = f"register_optimizer_step_{kind}_hook"
    if instruction.used:
        register = f"{instruction.used[0]}.register_step_{kind}_hook"
    else:
        script.define(f"from torch.optim.optimizer import {register}")  # torch.optim does not say where it is
    seen = f"optimizer.{PARAMETERS}, list(kwargs)"
    place = HookPlace(instruction.made[0], f"{register}({{}})", "optimizer, args, kwargs", seen, "args", many=None)
    return put(script, instruction, place, action, more={"closure": _closure})


FORMS["global_step_hook"] = step_hook


def _closure(_: Script, place: HookPlace) -> list[str]:
    return [
        "def closure():",
        f'    saw("{place.name}", "closure", torch.is_grad_enabled())',
        "",
        'return args, {**kwargs, "closure": closure}',
    ]
