"""The code of instructions that make, change and look at tensors, and of all that are one line of a table."""

from functools import partial

from hooklaw.fuzz.emit._script import FORMS, Script, Step, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.passes import PINNED, forbidden
from hooklaw.fuzz.replay.values import filled

SAVE = """\
def save(tensor):
    file = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.save(tensor, file)
    file.seek(0)
    loaded = torch.load(file)
    saw("save", bool(caught), loaded, loaded.requires_grad)
    return loaded"""
INSPECT = """\
def inspect(tensor):
    node = tensor.grad_fn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        has_grad = tensor.grad is not None
    saw("inspect", tensor.requires_grad, tensor.is_leaf, tensor.retains_grad, node is None, has_grad)
    if node is not None:
        node.metadata["looks"] = node.metadata.get("looks", 0) + 1
        saw("node", any(one is not None for one, _ in node.next_functions), node.metadata["looks"])"""
FORGOTTEN = 'del {0}\nsaw("forget", "{0}", {0}_alive() is not None)'
IN_REPLICAS = """\
def in_replicas(module, *inputs):
    # what torch.nn.DataParallel does on two devices
    rows = list(zip(*(one.chunk(2) for one in inputs)))
    replicas = [module._replicate_for_data_parallel() for _ in rows]
    for replica in replicas:
        replica.weight = module.weight.clone()
    recording = torch.is_grad_enabled()

    def run(replica, row):
        with torch.set_grad_enabled(recording):
            return replica(*row)

    threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in rows]
    running = [thread.submit(run, *one) for thread, *one in zip(threads, replicas, rows)]
    return torch.cat([torch.atleast_1d(one.result()) for one in running])"""
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
    "give": Step("{1}.detach().clone()", GRAD, anywhere=True),
    "save": Step("save({0})", NEW, imports=("io", "warnings"), defines=SAVE),
    "inspect": Step("inspect({0})", imports=("warnings",), defines=INSPECT),
    "forget": Step("weakref.ref({0})", "{0}_alive", after=FORGOTTEN, anywhere=True, imports=("weakref",)),
    "copy": Step("copy.deepcopy({0})", "{made}", after="{also} = {made}.weight", anywhere=True, imports=("copy",)),
    "parallel": Step("in_replicas({used})", NEW, imports=("concurrent.futures",), defines=IN_REPLICAS),
    "zero_grad": Step("{0}.zero_grad({how})"),
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


def _statement(template: Step, _: Script, instruction: Instruction) -> Step:
    names = {
        "made": instruction.made[0] if instruction.made else "",
        "also": instruction.made[-1] if instruction.made else "",
        "used": ", ".join(instruction.used),
        "how": ", ".join(map(_literal, instruction.how)),
        "word": instruction.how[0] if instruction.how else "",
    }
    texts = (part.format(*instruction.used, **names) for part in (template.code, template.target, template.after))
    return template._replace(**dict(zip(("code", "target", "after"), texts, strict=True)))


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _enter(template: str, script: Script, instruction: Instruction) -> Step | None:
    pinned = "pin_memory=True" if PINNED in instruction.how else ""
    return script.enter(instruction, template.format(pinned=pinned, forbidden=forbidden(instruction)))


FORMS.update({op: partial(_statement, template) for op, template in STATEMENTS.items()})
FORMS.update({op: partial(_enter, template) for op, template in CONTEXTS.items()})


@form
def leaf(_: Script, instruction: Instruction) -> Step:
    """Make a tensor of literal values."""
    shape, dtype, requires_grad = instruction.how
    grad = ", requires_grad=True" if requires_grad else ""
    values = filled(instruction.made[0], tuple(shape), dtype)
    code = f"torch.tensor({values}, dtype=torch.{dtype}{grad})"
    return Step(code, instruction.made[0], anywhere=not requires_grad)


@form
def split(script: Script, instruction: Instruction) -> Step:
    """Split in two."""
    name = instruction.used[0]
    shape = script.known.executed.shape(name)
    half = shape[0] // 2 if shape else f"{name}.shape[0] // 2"
    return Step(f"{name}.split({half})", ", ".join(instruction.made))


@form
def take(script: Script, instruction: Instruction) -> Step:
    """Give an accumulated gradient a name."""
    name = instruction.made[0]
    return Step(f"{instruction.used[0]}.grad", name, after=script.unless_none(name).lstrip())
