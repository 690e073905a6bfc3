"""Gradient buckets: what a communication hook is passed, and the size and the views that a user can ask for."""

from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, rule
from hooklaw.rules.ranks import FLAT, RANKS, averaged, mean, number, run, two_weights

COMM_HOOK = docstring("torch.nn.parallel.DistributedDataParallel.register_comm_hook")
BUCKET = "torch.distributed.GradBucket"
DDP = docstring("torch.nn.parallel.DistributedDataParallel")
DESIGN = notes("ddp", "internal-design")
NEEDS = [Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES]
WITH_HOOK = [Capability.COMM_HOOKS, *NEEDS]
SMALL = 0.001
"""A size of buckets, in MiB, that one parameter of the next length fills, in half precision too."""
LENGTH = 800


def looked_into(backend: Backend, look: Any, module: Any = None, **options: float) -> tuple[Any, Any]:
    """Distribute a module, or one with two parameters, whose communication hook looks into each bucket."""
    module = module or two_weights(backend, lambda module, x: x * module.weight + x * x * module.other)
    parallel = backend.distributed_data_parallel(module, **options)

    def hook(_state, bucket):
        look(bucket)
        return averaged(backend, bucket.buffer())

    backend.register_comm_hook(parallel, None, hook)
    return module, parallel


@rule(
    "ddp.comm-hook.bucket.gradients",
    level=Level.MUST,
    sources=[
        docstring(f"{BUCKET}.gradients").sentence(2, 3),
        docstring(f"{BUCKET}.parameters").sentence(2, 3),
        docstring(f"{BUCKET}.buffer").sentence(2),
    ],
    needs=WITH_HOOK,
    mutants=[
        "bucket-gradients-reversed",
        "bucket-without-its-last-gradient",
        "bucket-parameters-are-gradients",
        "bucket-gradients-of-one-element-apart",
    ],
    except_under=FLAT,
    processes=RANKS,
)
def test_bucket_gradients(backend: Backend, trace: Trace) -> None:
    """The buckets of a pass have a gradient for each parameter, and flat buffers of which the gradients are parts."""
    found: dict[str, Any] = {}
    parts: list[Any] = []

    def look(bucket: Any) -> None:
        gradients = [backend.tolist(each) for each in bucket.gradients()]
        for parameter, grad in zip(bucket.parameters(), gradients, strict=True):
            found[next(name for name in ("weight", "other") if getattr(module, name) is parameter)] = grad
        buffer = backend.tolist(bucket.buffer())
        rows = [row for grad in gradients for row in (grad if isinstance(grad[0], list) else [grad])]
        parts.append(all(row in [buffer[at:][: len(row)] for at in range(len(buffer))] for row in rows))

    def forward(module, x):
        return backend.sum(x * module.weight) + backend.sum(backend.sum(x) * module.other)

    own = number(backend)
    for _ in range(2):
        weights = {"weight": backend.tensor([2.0, 3.0]), "other": backend.tensor([[5.0, 6.0, 7.0]])}
        module = backend.module(weights, forward)
        _, parallel = looked_into(backend, look, module)
        for _ in range(3):
            for weight in (module.weight, module.other):
                backend.set_grad(weight, None)
            found.clear()
            run(backend, parallel, backend.tensor([own, own * 10]))
            trace.expect_value("gradient of weight", [own, own * 10], found.get("weight"))
            trace.expect_value("gradient of other", [[own * 11] * 3], found.get("other"))
    trace.expect_value("gradients are parts of their buffers", [True] * len(parts), parts)


@rule(
    "ddp.comm-hook.bucket.gradients.strides",
    level=Level.MUST,
    sources=[docstring(f"{BUCKET}.gradients").sentence(3), DDP.sentence(45)],
    needs=[*WITH_HOOK, Capability.VIEWS],
    mutants=["bucket-gradients-reversed"],
    except_under=FLAT,
    processes=RANKS,
)
def test_bucket_gradients_strides(backend: Backend, trace: Trace) -> None:
    """The gradients of a bucket have each value in its place, also if a parameter is not laid out row by row."""
    seen: list[Any] = []

    def hook(_state, bucket):
        seen.append(backend.tolist(bucket.gradients()[0]))
        return averaged(backend, bucket.buffer())

    for _ in range(2):
        columns = backend.transpose(backend.tensor([[2.0, 3.0], [5.0, 7.0]]), 0, 1)
        module = backend.module({"weight": columns}, lambda module, x: x * module.weight)
        parallel = backend.distributed_data_parallel(module)
        backend.register_comm_hook(parallel, None, hook)
        for _ in range(3):
            backend.set_grad(module.weight, None)
            run(backend, parallel, backend.tensor([[1.0, 2.0], [3.0, 4.0]]))
            trace.expect_value("gradients", [[[1.0, 2.0], [3.0, 4.0]]], seen)
            seen.clear()


@rule(
    "ddp.comm-hook.bucket.last",
    level=Level.MUST,
    sources=[docstring(f"{BUCKET}.is_last").sentence(2)],
    needs=[*WITH_HOOK, Capability.GRADIENT_BUCKETS],
    mutants=["every-bucket-is-the-last", "first-bucket-is-the-last"],
    processes=RANKS,
)
def test_bucket_last(backend: Backend, trace: Trace) -> None:
    """In each pass is_last is true of the bucket that is reduced last, and of no other."""
    lasts: list[bool] = []

    def hook(_state, bucket):
        lasts.append(bucket.is_last())
        return averaged(backend, bucket.buffer())

    for _ in range(2):
        weights = {name: backend.tensor([2.0] * LENGTH) for name in ("first", "second", "third")}
        module = backend.module(weights, lambda module, x: x * module.first * module.second * module.third)
        parallel = backend.distributed_data_parallel(module, bucket_cap_mb=SMALL)
        backend.register_comm_hook(parallel, None, hook)
        for each in ("first", "second", "third"):
            run(backend, parallel)
            trace.expect_value(f"which is last in the {each} pass", [*[False] * (len(lasts) - 1), True], lasts)
            lasts.clear()


@rule(
    "ddp.comm-hook.bucket.set-buffer",
    level=Level.MUST,
    sources=[docstring(f"{BUCKET}.set_buffer").sentence(2)],
    needs=WITH_HOOK,
    mutants=["bucket-keeps-its-buffer", "bucket-buffer-set-to-a-copy"],
    processes=RANKS,
)
def test_set_buffer(backend: Backend, trace: Trace) -> None:
    """set_buffer of a bucket replaces the tensor that its buffer returns."""
    seen: list[Any] = []

    def look(bucket: Any) -> None:
        made = bucket.buffer() * 10
        bucket.set_buffer(made)
        backend.all_reduce(made)  # changes it in place
        seen.append(backend.tolist(bucket.buffer()) == backend.tolist(made))

    for _ in range(2):
        _, parallel = looked_into(backend, look)
        for _ in range(3):
            run(backend, parallel)

    trace.expect_value("replaced", [True] * max(6, len(seen)), seen)


@rule(
    "ddp.buckets.size",
    level=Level.MUST,
    sources=[DDP.sentence(71, 72), DESIGN.sentence(6, 7)],
    needs=[*NEEDS, Capability.GRADIENT_BUCKETS],
    mutants=["ddp-reduces-the-last-bucket-only", "ddp-reduces-the-first-bucket-for-all"],
    processes=RANKS,
)
def test_bucket_size(backend: Backend, trace: Trace) -> None:
    """With bucket_cap_mb small enough for several buckets the gradients of all of them are averaged, in each pass.

    The size divides the gradients into buckets that are reduced one at a time, which changes no value.
    """
    factors = {"first": 1.0, "second": 2.0, "third": 3.0}
    for _ in range(2):
        weights = {name: backend.tensor([2.0] * LENGTH) for name in factors}
        module = backend.module(weights, lambda module, x: x * (module.first + module.second * 2 + module.third * 3))
        parallel = backend.distributed_data_parallel(module, bucket_cap_mb=SMALL)
        for each in ("first", "second", "third"):
            for name in factors:
                backend.set_grad(getattr(module, name), None)
            run(backend, parallel)
            for name, factor in factors.items():
                seen = backend.tolist(backend.grad_of(getattr(module, name)))
                expected = mean(backend, lambda own, factor=factor: own * factor) * LENGTH
                trace.expect_value(f"{name}.grad after the {each} pass", expected, seen)


@rule(
    "ddp.buckets.several",
    level=Level.MUST,
    sources=[DDP.sentence(72), DESIGN.sentence(7), COMM_HOOK.sentence(12)],
    needs=[*WITH_HOOK, Capability.GRADIENT_BUCKETS],
    mutants=[
        "ddp-makes-one-bucket",
        "comm-hook-result-for-the-last-bucket-only",
        "comm-hook-result-of-the-first-bucket-for-all",
        "ddp-makes-small-buckets-always",
    ],
    processes=RANKS,
)
def test_several_buckets(backend: Backend, trace: Trace) -> None:
    """With a bucket_cap_mb that one parameter fills, a communication hook sets gradients in several buckets.

    A pass before may have other buckets: they are rebuilt after it. With a size that both parameters do not fill there
    are fewer, since the option controls the size.
    """
    factors = {"first": 1.0, "second": 2.0}
    counts: list[int] = []
    states: list[Any] = []

    def hook(state, bucket):
        states.append(state)
        return backend.future(bucket.buffer() * 10)

    for options in ({"bucket_cap_mb": SMALL}, {}, {"bucket_cap_mb": SMALL}, {"bucket_cap_mb": 100 * SMALL}):
        weights = {name: backend.tensor([2.0] * LENGTH) for name in factors}
        module = backend.module(weights, lambda module, x: x * (module.first + module.second * 2))
        parallel = backend.distributed_data_parallel(module, **options)
        own: list[int] = []
        backend.register_comm_hook(parallel, own, hook)
        run(backend, parallel)
        for passes in (2, 3):
            states.clear()
            for name in weights:
                backend.set_grad(getattr(module, name), None)
            run(backend, parallel)
            counts.append(len(states))
            trace.expect_value("state in each bucket", [True] * len(states), [each is own for each in states])
            for name, factor in factors.items():
                expected = [10 * factor * number(backend)] * LENGTH
                seen = backend.tolist(backend.grad_of(getattr(module, name)))
                trace.expect_value(f"{name}.grad after pass {passes}", expected, seen)

    several, fewer = (*counts[:2], *counts[4:6]), (*counts[2:4], *counts[6:])
    trace.expect_value("several buckets", True, min(several) > 1)  # noqa: FBT003 - the expected value
    trace.expect_value("fewer of a larger size", True, max(fewer) < min(several))  # noqa: FBT003


@rule(
    "ddp.gradient-as-bucket-view.averaged",
    level=Level.MUST,
    sources=[DDP.sentence(78), DESIGN.sentence(25)],
    needs=[*NEEDS, Capability.GRADIENT_BUCKETS],
    mutants=[
        "ddp-bucket-views-lost-with-their-gradients",
    ],
    processes=RANKS,
)
def test_gradient_as_bucket_view(backend: Backend, trace: Trace) -> None:
    """With gradient_as_bucket_view=True the gradients are averaged too, in each pass.

    The option says where the gradients lie, in the buckets; it does not change that averages are written to .grad.
    """
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * x * module.other)
        parallel = backend.distributed_data_parallel(module, gradient_as_bucket_view=True)
        for each, passes in (("first", 1), ("second", 2), ("third", 1)):
            if each == "third":
                backend.set_grad(module.weight, None)
                backend.set_grad(module.other, None)
            run(backend, parallel)
            for name, power in (("weight", 1), ("other", 2)):
                expected = [passes * value for value in mean(backend, lambda own, power=power: own**power)]
                said = f"{name}.grad after the {each} pass"
                trace.expect_value(said, expected, backend.grad_of(getattr(module, name)))


@rule(
    "ddp.gradient-as-bucket-view.shared",
    level=Level.MUST,
    sources=[DDP.sentence(78, 83)],
    needs=[*WITH_HOOK, Capability.GRADIENT_BUCKETS, Capability.IN_PLACE],
    mutants=["ddp-bucket-views-are-copies", "ddp-bucket-views-always"],
    processes=RANKS,
)
def test_gradient_is_bucket_view(backend: Backend, trace: Trace) -> None:
    """With gradient_as_bucket_view=True, after the first pass, gradients are views of the buckets.

    That is what the option changes: without it they are copies.
    """
    means = {"weight": mean(backend)[0], "other": mean(backend, lambda own: own * own)[0]}
    for are_views, given in ((True, True), (False, None), (True, True), (False, False)):
        kept: list[Any] = []
        options = {} if given is None else {"gradient_as_bucket_view": given}
        module, parallel = looked_into(backend, lambda bucket, kept=kept: kept.append(bucket.gradients()), **options)
        run(backend, parallel)
        for passes in (2, 3):
            kept.clear()
            run(backend, parallel)
            for grad in (grad for gradients in kept for grad in gradients):
                backend.mul_(grad, 0.0)

            for name, share in means.items():
                expected = [0.0] if are_views else [passes * share]
                trace.expect_value(f"{name}.grad", expected, backend.grad_of(getattr(module, name)))
