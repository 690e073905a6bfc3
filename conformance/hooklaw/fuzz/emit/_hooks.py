"""The code of instructions that register hooks of every kind, and of what their hooks do."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from textwrap import indent
from typing import Any, NamedTuple

from hooklaw.fuzz.emit._script import FORMS, WIDTH, Script, Step, broken, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import UNSERIALIZABLE, keeps, scaled
from hooklaw.fuzz.replay.modules import pairs
from hooklaw.fuzz.replay.operations import traits_of


class HookPlace(NamedTuple):
    """Where a hook is put, and what a hook there is given."""

    name: str
    register: str
    """The registering call, with {} for the hook."""
    parameters: str
    seen: str
    """What the hook notes."""
    replaced: str
    """What its result stands for."""
    many: bool | None
    """Whether that is a tuple; None where it is not known."""
    returned: str = "{}"
    """How its result is given back."""
    optional: bool = True
    """Whether what it replaces may be None."""


Lines = Callable[..., list[str]]
"""Gives the lines of a hook that do something."""


def put(  # noqa: PLR0913 - the rest has names
    script: Script,
    instruction: Instruction,
    place: HookPlace,
    action: tuple[Any, ...],
    before: Any = (),
    *,
    more: Mapping[str, Lines] | None = None,
) -> Step:
    """Register the hook of an instruction, defined as a function unless it fits into a lambda."""
    name = place.name
    lines = {**ACTIONS, **(more or {})}[action[0]](script, place, *action[1:])
    if lines:
        seen = f'saw("{name}", {place.seen})'
        script.define(f"def {name}({place.parameters}):\n" + indent("\n".join([seen, *lines]), "    "))
    hook = name if lines else f'lambda {place.parameters}: saw("{name}", {place.seen})'
    target = f"{name}_handle" if script.known.wanted(name) or traits_of(instruction).everywhere else ""
    if traits_of(instruction).everywhere and not script.known.refused(instruction):
        script.everywhere.append(f"{target}.remove()")
    return Step(place.register.format(hook), target, before=before)


@form
def hook(script: Script, instruction: Instruction) -> Step:
    """Put a hook on a tensor."""
    tensor, before = _captured(script, instruction)
    hook = "torch.utils.hooks.unserializable_hook({})" if UNSERIALIZABLE in instruction.how else "{}"
    place = HookPlace(instruction.made[0], f"{tensor}.register_hook({hook})", "grad", "grad", "grad", many=False)
    return put(
        script,
        instruction,
        place._replace(optional=script.known.undefined(instruction.made[0])),
        instruction.how[0],
        before,
    )


def _captured(script: Script, instruction: Instruction) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return a name for the tensors that a hook uses again, also after the program has let go of them."""
    tensors = ", ".join(instruction.used)
    tensors = f"[{tensors}]" if instruction.op == "multi_grad" else tensors
    again = instruction.how[0][0] == "register" or instruction.op == "post_accumulate"
    if again and any(map(script.known.forgotten, instruction.used)) and not script.known.refused(instruction):
        return f"{instruction.made[0]}_uses", ((f"{instruction.made[0]}_uses", tensors),)
    return tensors, ()


def _on_node(verb: str, parameters: str, script: Script, instruction: Instruction) -> Step:
    keep = instruction.how[0][0] == "register" or script.known.forgets()
    before, node = script.node(instruction.used[0], f"{instruction.made[0]}_node", keep=keep)
    before, node = (before, node) if keeps(instruction) else ((), script.loose_node(instruction.used[0]))
    first = parameters.split(", ", maxsplit=1)[0]
    place = HookPlace(instruction.made[0], f"{node}.{verb}({{}})", parameters, parameters, first, many=True)
    return put(script, instruction, place, instruction.how[0], before)


FORMS["prehook"] = partial(_on_node, "register_prehook", "grad_outputs")
FORMS["posthook"] = partial(_on_node, "register_hook", "grad_inputs, grad_outputs")


@form
def post_accumulate(script: Script, instruction: Instruction) -> Step:
    """Put a post-accumulate hook on a leaf."""
    tensor, before = _captured(script, instruction)
    register = f"{tensor}.register_post_accumulate_grad_hook({{}})"
    place = HookPlace(instruction.made[0], register, "leaf", f"leaf.grad, leaf is {tensor}", "leaf.grad", many=False)
    return put(script, instruction, place, instruction.how[0], before)


@form
def multi_grad(script: Script, instruction: Instruction) -> Step:
    """Put a hook on several tensors."""
    action, mode = instruction.how
    tensors, before = _captured(script, instruction)
    word = "grad" if mode == "any" else "grads"
    register = f'torch.autograd.graph.register_multi_grad_hook({tensors}, {{}}, mode="{mode}")'
    return put(
        script,
        instruction,
        HookPlace(instruction.made[0], register, word, word, word, many=mode != "any"),
        action,
        before,
    )


@form
def remove(script: Script, instruction: Instruction) -> Step:
    """Remove a hook."""
    name = instruction.used[0]
    put_by = script.known.makers.get(name)
    held = put_by and put_by.op in ("hook", "post_accumulate", "multi_grad") and _captured(script, put_by)[1]
    return Step(f"{name}_handle.remove()", after=f"{name}_uses = None" if held else "", anywhere=True)


GIVEN = {
    "forward_pre": "args",
    "forward": "output, args",
    "full_backward_pre": "grad_output",
    "full_backward": "grad_input, grad_output",
    "backward": "grad_input, grad_output",
}
"""What a module's hook notes; the first may be replaced."""


@form
def module_hook(script: Script, instruction: Instruction) -> Step:
    """Put a hook on a module, or on all."""
    kind, action, options = instruction.how
    register = f"{instruction.used[0]}.register" if instruction.used else "torch.nn.modules.module.register_module"
    seen = GIVEN[kind] + (", kwargs" if "with_kwargs" in options else "")
    words = ["args", "kwargs", "output"] if kind == "forward" else seen.split(", ")
    parameters = ", ".join(["module", *(word for word in words if word in seen.split(", "))])
    named = "".join(f", {option}=True" for option in options)
    many = None if kind == "forward" else True
    returned = "({}, kwargs)" if pairs(instruction.how) else "{}"
    fails = instruction.op == "global_hook" and "always_call" in options
    if kind == "forward" and "with_kwargs" in options and (fails or script.known.wanted(instruction.made[0])):
        parameters, seen = "module, args, *others", "others[-1], args, *others[:-1]"  # kwargs may be missing in torch
    first = seen.split(", ", maxsplit=1)[0]
    register = f"{register}_{kind}_hook({{}}{named})"
    place = HookPlace(instruction.made[0], register, parameters, seen, first, many, returned)
    return put(script, instruction, place, action)


FORMS["global_hook"] = module_hook


# --- what hooks do


def _scale(script: Script, place: HookPlace, number: float) -> list[str]:
    value = place.replaced
    if place.many is False:
        unless = f"None if {value} is None else " if place.optional else ""
        return [f"return {unless}{value} * {number!r}"]
    result = f"{script.include(scaled)}({value}, {number!r})"
    return [f"return {place.returned.format(result)}"]


def _nan(script: Script, place: HookPlace) -> list[str]:
    return [re.sub(r"\bnan\b", 'float("nan")', line) for line in _scale(script, place, float("nan"))]


def _remove(script: Script, place: HookPlace, name: str = "") -> list[str]:
    name = name or place.name
    handle = f"{name}_handle"
    if name == place.name or script.known.lasts(name):
        return [f"{handle}.remove()"]
    return [f'if "{handle}" in globals():', f"    {handle}.remove()"]


def _register(script: Script, place: HookPlace) -> list[str]:
    more = f"{place.name}_more"
    script.define(f"{more} = []")
    again = place.register.format(f'lambda {place.parameters}: saw("{place.name}+", {place.seen})')
    if "register_module_" in place.register or "register_optimizer_" in place.register:
        script.everywhere.append(f"for handle in {more}:\n    handle.remove()")
    lines = broken(f"{more}.append({again})", WIDTH - 8).splitlines()
    return [f"if not {more}:", *(f"    {line}" for line in lines)]


def _where_there(script: Script, name: str, lines: list[str]) -> list[str]:
    if script.known.lasts(name):
        return lines
    return [f'if "{name}" in globals():', *(f"    {line}" for line in lines)]


def _peek(script: Script, place: HookPlace, name: str) -> list[str]:
    return _where_there(script, name, [f'saw("{place.name}", "{name}.grad", {script.grad_of(name)})'])


def _backward(script: Script, place: HookPlace, name: str) -> list[str]:
    ran = f"{place.name}_ran"
    lines = [f"if not {ran}:", f"    {ran}.append(True)", "    with torch.enable_grad():"]
    found = _where_there(script, name, [*lines, f"        {name}.sum().backward(retain_graph=True)"])
    if found:
        script.define(f"{ran} = []")
    return found


def _drop(script: Script, _: HookPlace, name: str) -> list[str]:
    return _where_there(script, name, [f"{name}.grad = None"])


def _step(script: Script, place: HookPlace, name: str) -> list[str]:
    shown = f'saw("{place.name}", "step", {name}.param_groups[0]["params"])'
    return _where_there(script, name, [f"{name}.step()", shown, f"{name}.zero_grad()"])


def _keep(_: Script, place: HookPlace, name: str) -> list[str]:
    value = place.replaced
    if place.many is None:
        value = f"({value}[0] if isinstance({value}, (tuple, list)) else {value})"
    elif place.many:
        value += "[0]"
    return [f"global {name}", f"if {value} is not None:", f"    {name} = {value}"]


def _same(_script: Script, place: HookPlace) -> list[str]:
    same = place.replaced.removesuffix(".grad")  # of a post-accumulate hook the leaf
    return [f"return {place.returned.format(same)}"]


def _wrong(script: Script, place: HookPlace, what: str = "type") -> list[str]:
    value = place.replaced
    single, each = _no_gradient(script, value, what), _no_gradient(script, "one", what)
    several = {"count": f"(*{value}, None)", "bare": f"{value}[0] if {value} else 1.0"}.get(
        what, f"tuple({each} for one in {value})"
    )
    if place.many is None:
        return [f"if isinstance({value}, (tuple, list)):", f"    return {several}", f"return {single}"]
    return [f"return {place.returned.format(several if place.many else single)}"]


def _no_gradient(script: Script, value: str, what: str) -> str:
    if what not in ("dtype", "shape"):
        return "1.0"
    script.define(OTHER_DTYPE if what == "dtype" else OTHER_SHAPE)
    return f"other_{what}({value})"


OTHER_SHAPE = """\
def other_shape(grad):
    return 1.0 if grad is None else torch.ones(() if grad.dim() else 1, dtype=grad.dtype)"""
OTHER_DTYPE = """\
def other_dtype(grad):
    if grad is None:
        return 1.0
    return torch.ones(grad.shape, dtype=torch.float32 if grad.dtype == torch.float64 else torch.float64)"""


INNER = "inner = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)"
REENTRANT = f"""\
{INNER}
inner.register_hook(lambda grad: saw("{{name}}", "inner", grad))
with torch.enable_grad():
    (inner * inner).sum().backward()"""
CONTEXT = f"""\
{INNER}

def pack(tensor):
    saw("{{name}}", "pack", tensor)
    return tensor

with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
    inner.sin()"""


def _fixed(text: str, _: Script, place: HookPlace) -> list[str]:
    return text.format(name=place.name).splitlines()


ACTIONS: dict[str, Lines] = {
    "nothing": partial(_fixed, ""),
    "scale": _scale,
    "nan": _nan,
    "raise": partial(_fixed, 'raise Exception("planned")'),
    "remove": _remove,
    "register": _register,
    "peek": _peek,
    "reentrant": partial(_fixed, REENTRANT),
    "backward": _backward,
    "drop": _drop,
    "step": _step,
    "context": partial(_fixed, CONTEXT),
    "keep": _keep,
    "same": _same,
    "wrong": _wrong,
}
"""The lines of a hook that do something, by the first word of its action."""
