"""Statements: the instructions that are one line of a table, an expression with its target or a context."""

from functools import partial

from hooklaw.fuzz.emit.script import FORMS, Script, Step
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.passes import PINNED, forbidden

NEW, GRAD = "{made}", "{0}.grad"
STATEMENTS: dict[str, Step] = {
    "add": Step("{0} + {1}", NEW),
    "sub": Step("{0} - {1}", NEW),
    "mul": Step("{0} * {1}", NEW),
    "scale": Step("{0} * {how}", NEW),
    "shift": Step("{0} + {how}", NEW),
    "sin": Step("{0}.sin()", NEW),
    "cos": Step("{0}.cos()", NEW),
    "exp": Step("{0}.exp()", NEW),
    "sum": Step("{0}.sum()", NEW),
    "clone": Step("{0}.clone()", NEW),
    "detach": Step("{0}.detach()", NEW),
    "view": Step("{0}.view({how})", NEW),
    "transpose": Step("{0}.transpose(0, 1)", NEW),
    "expand": Step("{0}.expand({how})", NEW),
    "channels_last": Step("{0}.contiguous(memory_format=torch.channels_last)", NEW),
    "scale_": Step("{0}.mul_({how})"),
    "mul_": Step("{0}.mul_({1})"),
    "cos_": Step("{0}.cos_()"),
    "own": Step("{0}.detach().requires_grad_()", NEW),
    "zero": Step("None", GRAD, anywhere=True),
    "flag": Step("{how}", "{0}.requires_grad", anywhere=True),
    "bump": Step("torch.autograd.graph.increment_version({0})"),
    "edge": Step("torch.autograd.graph.get_gradient_edge({0})", NEW),
    "value": Step('saw("{0}.value", {0})'),
    "retain_grad": Step("{0}.retain_grad()"),
    "mode": Step('saw("mode", torch.is_grad_enabled())'),
    "add_module": Step("{0}.add_module({how}, {1})", after='saw("registered", {how}, {0}.{word}.weight)'),
    "register_buffer": Step(
        "{0}.register_buffer({how}, {1}.detach().clone())", after='saw("registered", {how}, {0}.{word})'
    ),
    "step": Step("{0}.step()", after='saw("step", "{0}", {0}.param_groups[0]["params"])'),
}
"""By instruction, with places for the names that it uses and makes, and for its options."""
CONTEXTS: dict[str, str] = {
    "no_grad": "torch.no_grad()",
    "enable_grad": "torch.enable_grad()",
    "inference_mode": "torch.inference_mode()",
    "detect_anomaly": "torch.autograd.set_detect_anomaly(True)",
    "allow_mutation": "torch.autograd.graph.allow_mutation_on_saved_tensors()",
    "save_on_cpu": "torch.autograd.graph.save_on_cpu({pinned})",
    "disable_saved_hooks": 'torch.autograd.graph.disable_saved_tensors_hooks("{forbidden}")',
}
"""By the instruction that enters them."""


def _statement(template: Step, _: Script, one: Instruction) -> Step:
    names = {
        "made": one.made[0] if one.made else "",
        "how": ", ".join(map(_literal, one.how)),
        "word": one.how[0] if one.how else "",
    }
    texts = (part.format(*one.used, **names) for part in (template.code, template.target, template.after))
    return template._replace(**dict(zip(("code", "target", "after"), texts, strict=True)))


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _enter(template: str, script: Script, one: Instruction) -> Step | None:
    pinned = "pin_memory=True" if PINNED in one.how else ""
    return script.enter(one, template.format(pinned=pinned, forbidden=forbidden(one)))


FORMS.update({op: partial(_statement, template) for op, template in STATEMENTS.items()})
FORMS.update({op: partial(_enter, template) for op, template in CONTEXTS.items()})
