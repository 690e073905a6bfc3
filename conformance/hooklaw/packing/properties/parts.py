"""Helpers of the programs; each program is printed with those it uses."""

import gc
import threading
import tracemalloc
from functools import partial  # noqa: F401 - the case of a lossy packer uses it
from pathlib import Path

import torch


def numbers(*shape, device):
    """Return a tensor of distinct numbers."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, device=device, dtype=torch.float32) / 8 + 0.5).reshape(shape)


def saved(packer, tensor):
    """Save the tensor under the packer, and return what backward unpacks."""
    seen = []

    class Save(torch.autograd.Function):
        @staticmethod
        def forward(ctx, anchor, tensor):
            ctx.save_for_backward(tensor)
            return anchor.clone()

        @staticmethod
        def backward(ctx, grad):
            seen.extend(ctx.saved_tensors)
            return grad, None

    anchor = torch.zeros((), device=tensor.device, requires_grad=True)
    with packer():
        y = Save.apply(anchor, tensor)
    y.backward()
    return seen[0]


def identical(expected, seen):
    """Whether two tensors are bitwise equal."""
    if (expected.shape, expected.dtype, expected.device) != (seen.shape, seen.dtype, seen.device):
        return False
    plain = [tensor.resolve_conj().resolve_neg().reshape(-1).contiguous() for tensor in (expected, seen)]
    return torch.equal(*(tensor.view(torch.uint8) for tensor in plain))


def within(tolerance, expected, seen):
    """Whether two tensors differ by at most this part of the largest magnitude; inf and NaN must stay not finite."""
    if (expected.shape, expected.dtype, expected.device) != (seen.shape, seen.dtype, seen.device):
        return False
    finite = expected.isfinite()
    if not torch.equal(finite, seen.isfinite()):
        return False
    wide = torch.complex128 if expected.is_complex() else torch.float64
    was, found = expected[finite].to(wide), seen[finite].to(wide)
    bound = tolerance * was.abs().max() if was.numel() else 0
    return bool(((was - found).abs() <= bound + torch.finfo(torch.float32).tiny).all())


def agree(what, expected, seen, tolerance):
    """Assert that a gradient is the expected one; a lossy packer may be off by its tolerance."""
    assert seen is not None, f"{what} is missing"
    assert seen.shape == expected.shape, f"{what} has shape {list(seen.shape)}, should have {list(expected.shape)}"
    expected, seen = expected.detach().flatten(), seen.detach().flatten()
    error = (expected - seen).abs()
    worst = int(error.argmax()) // 8 * 8
    shown = slice(worst, worst + 8)
    good = bool((error <= (1e-5 + 8 * tolerance) * expected.abs().max()).all())
    assert good, f"{what} is {seen[shown].tolist()}, should be {expected[shown].tolist()}"


def unchanged(packer, run, tolerance):
    """Assert that a function returns the same tensors, by name, under the packer as without it."""
    expected = run()
    with packer():
        seen = run()
    for name in expected:
        agree(name, expected[name], seen[name], tolerance)


def right_or_refused(what, loss, x, right, tolerance):
    """Assert that after an in-place change backward raises an error, as autograd itself would, or is right."""
    try:
        loss.backward()
    except RuntimeError:
        return
    agree(f"the gradient, of {what} changed after it was saved,", right, x.grad, tolerance)


def held(device):
    """Return the bytes of live tensors, and on the CPU also of arrays and byte strings."""
    gc.collect()
    if device != "cpu":
        return torch.cuda.memory_allocated(device)
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    plain = [found for found in gc.get_objects() if type(found) in (torch.Tensor, torch.nn.Parameter)]
    tensors = [tensor for tensor in plain if tensor.layout == torch.strided]  # a sparse tensor has no storage to ask
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values()) + tracemalloc.get_traced_memory()[0]


def watched(device):
    """Whether saved-tensor hooks are active: autograd then does not notice that a saved tensor was changed."""
    y = torch.zeros(1, device=device, requires_grad=True).exp()
    with torch.no_grad():
        y.add_(1)
    try:
        y.sum().backward()
    except RuntimeError:
        return False
    return True


def together(tasks):
    """Run each task in a thread of its own, and raise the first error."""
    errors = []

    def run(task):
        try:
            task()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def on_disk(medium):
    """Return the bytes of the files in the folder of a medium such as disk:FOLDER."""
    files = [path for path in Path(medium.removeprefix("disk:")).rglob("*") if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files)
