"""What a program needs of a backend: one that needs what the backend lacks says nothing, and is left out."""

from collections.abc import Iterator, Sequence
from typing import Any

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay import functions
from hooklaw.fuzz.replay.hooks import UNSERIALIZABLE
from hooklaw.fuzz.replay.passes import MATERIALIZED

ALWAYS = frozenset({Capability.FLOAT64, Capability.RETAINS_GRAD, Capability.GRAD_MODE, Capability.SEED_GRADIENT})
"""What carrying out and watching any program takes."""
OF: dict[str, tuple[Capability, ...]] = {
    "sin": (Capability.SIN_COS,),
    "cos": (Capability.SIN_COS,),
    "split": (Capability.MULTI_OUTPUT,),
    "view": (Capability.VIEWS,),
    "transpose": (Capability.VIEWS,),
    "expand": (Capability.VIEWS,),
    "channels_last": (Capability.CHANNELS_LAST,),
    "scale_": (Capability.IN_PLACE,),
    "mul_": (Capability.IN_PLACE,),
    "cos_": (Capability.IN_PLACE,),
    "custom": (Capability.CUSTOM_FUNCTION,),
    "function": (Capability.CUSTOM_FUNCTION, Capability.NEEDS_INPUT_GRAD),
    "detect_anomaly": (Capability.ANOMALY,),
    "flag": (Capability.REQUIRES_GRAD_FLAG,),
    "bump": (Capability.INCREMENT_VERSION,),
    "edge": (Capability.GRADIENT_EDGES,),
    "forward": (Capability.MODULES, Capability.MODULE_FORWARD),
    "checkpoint": (Capability.CHECKPOINT, Capability.SIN_COS),
    "own": (Capability.VIEWS, Capability.STRIDES),
    "save": (Capability.SERIALIZATION,),
    "forget": (Capability.WEAK_REFERENCES,),
    "inspect": (Capability.NODES, Capability.NODE_METADATA),
    "hook": (Capability.TENSOR_HOOKS,),
    "prehook": (Capability.NODES, Capability.NODE_HOOKS),
    "posthook": (Capability.NODES, Capability.NODE_HOOKS),
    "post_accumulate": (Capability.POST_ACCUMULATE,),
    "multi_grad": (Capability.MULTI_GRAD,),
    "retain_grad": (Capability.RETAIN_GRAD,),
    "grad": (Capability.AUTOGRAD_GRAD,),
    "saved_hooks": (Capability.SAVED_TENSOR_HOOKS,),
    "disable_saved_hooks": (Capability.DISABLE_SAVED_TENSOR_HOOKS,),
    "save_on_cpu": (Capability.SAVE_ON_CPU,),
    "allow_mutation": (Capability.ALLOW_MUTATION,),
    "inference_mode": (Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS),
    "saved_pair": (Capability.NODES, Capability.SAVED_TENSOR_REGISTER),
    "read_saved": (Capability.NODES, Capability.SAVED_TENSOR_ACCESS),
    "module": (Capability.MODULES,),
    "copy": (Capability.MODULES,),
    "parallel": (Capability.MODULES, Capability.DATA_PARALLEL),
    "module_hook": (Capability.MODULES, Capability.MODULE_HOOK_OPTIONS),
    "add_module": (Capability.MODULES, Capability.STATE_DICT),
    "register_buffer": (Capability.MODULES, Capability.REGISTRATION_HOOKS),
    "registration_hook": (Capability.MODULES, Capability.REGISTRATION_HOOKS),
    "state_dict": (Capability.STATE_DICT,),
    "load_state_dict": (Capability.STATE_DICT,),
    "state_hook": (Capability.STATE_DICT,),
    "sgd": (Capability.OPTIMIZERS,),
    "step": (Capability.OPTIMIZERS,),
    "zero_grad": (Capability.OPTIMIZERS,),
    "step_hook": (Capability.OPTIMIZERS,),
    "global_step_hook": (Capability.OPTIMIZERS,),
    "global_hook": (Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS),
}
"""By instruction; one that is not named here needs core verbs only."""
MODULE_HOOKS = {
    "full_backward": Capability.MODULE_BACKWARD_HOOKS,
    "backward": Capability.LEGACY_MODULE_BACKWARD_HOOKS,
    "full_backward_pre": Capability.MODULE_BACKWARD_PRE_HOOKS,
}
REGIONS = {
    "hooks": Capability.TENSOR_HOOKS,
    "changes": Capability.IN_PLACE,
    "custom": Capability.CUSTOM_FUNCTION,
    "pair": Capability.SAVED_TENSOR_HOOKS,
    "boxed": Capability.SAVED_TENSOR_HOOKS,
    "gradient": Capability.AUTOGRAD_GRAD,
    "module": Capability.MODULES,
}
ACTIONS = {
    "reentrant": (Capability.TENSOR_HOOKS,),
    "context": (Capability.SAVED_TENSOR_HOOKS, Capability.SIN_COS),
}


def needs(program: Sequence[Instruction]) -> frozenset[Capability]:
    """Return the capabilities that a program uses."""
    return frozenset(need for one in program for need in _of(one))


def _of(one: Instruction) -> Iterator[Capability]:
    yield from OF.get(one.op, ())
    if one.thread:
        yield Capability.THREADS
    if one.op in ("module_hook", "global_hook") and one.how[0] in MODULE_HOOKS:
        yield MODULE_HOOKS[one.how[0]]
    if one.op == "checkpoint" and one.how[0] in REGIONS:
        yield REGIONS[one.how[0]]
    if UNSERIALIZABLE in one.how:
        yield Capability.SERIALIZATION
    if one.op == "function":
        yield from functions.needs(one.how[0])
    if one.op == "leaf" and one.how[1].startswith("int"):
        yield Capability.INTEGER
    if one.op == "backward" and len(one.used) > 1:
        yield Capability.BACKWARD_INPUTS
    if one.op in ("backward", "grad"):
        yield from _of_pass(one)
    for part in one.how:
        yield from ACTIONS.get(_word(part), ())


def _of_pass(one: Instruction) -> Iterator[Capability]:
    _, retain, create = one.how[:3]
    if MATERIALIZED in one.how:
        yield Capability.MATERIALIZE_GRADS
    if retain:
        yield Capability.RETAIN_GRAPH
    if create:
        yield Capability.CREATE_GRAPH if one.op == "grad" else Capability.BACKWARD_CREATE_GRAPH


def _word(part: Any) -> str:
    return part[0] if isinstance(part, tuple) and part and isinstance(part[0], str) else ""
