"""Devices of torch: any that torch knows by a string, one that a package registers, and one that is not there."""

import os

import pytest

from helpers import complaint

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils import backend_registration  # noqa: E402 - as the next line

from hooklaw import errors  # noqa: E402 - as the next line
from hooklaw.backend.capabilities import SEVERAL_PROCESSES, Capability  # noqa: E402 - as the next line
from hooklaw_backends import torch_eager  # noqa: E402 - needs torch


def test_unknown_device_is_refused(hooklaw):
    """A device that torch does not know is a mistake, which no option allows."""
    done = hooklaw("run", "--backend", "torch-eager:lawdevice", "-k", "order.six-steps.leaf", "--allow-not-run")

    assert (done.returncode, done.stdout) == (3, "")
    assert "does not know the device 'lawdevice': check the word, or name the package" in complaint(done)


def test_package_that_registers_a_device_is_imported_first(hooklaw, tmp_path):
    """With --import the package's device is known to torch; what it then lacks is named."""
    (tmp_path / "lawdevice_package.py").write_text(
        "import torch\ntorch.utils.rename_privateuse1_backend('lawdevice')\n"
    )
    done = hooklaw(
        "run", "--backend", "torch-eager:lawdevice", "--import", "lawdevice_package", "-k", "order.six-steps.leaf",
        path=[tmp_path], apart=True,
    )  # fmt: skip

    assert done.returncode == 3
    assert "not run: torch" in done.stdout
    assert "Expected one of" not in done.stdout
    assert "torch-eager:lawdevice cannot be judged here: torch" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_without_a_gpu_is_not_run(hooklaw):
    """Without a GPU every rule is not run, and the record says why."""
    done = hooklaw("run", "--backend", "torch-eager:cuda", "-k", "order.six-steps.leaf", "--allow-not-run")

    assert done.returncode == 0
    assert "not run: no CUDA device here" in done.stdout


@pytest.mark.parametrize(("worker", "seen"), [(True, ""), (False, "0")])
def test_gpus_are_hidden_from_a_worker_that_judges_the_cpu(monkeypatch, worker, seen):
    """Beside torch's threads for a GPU no rank could be forked; other processes may use it."""
    monkeypatch.setattr(errors, "_is_worker", worker)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    torch_eager.backend("cpu")

    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


def test_no_ranks_beside_a_gpu(monkeypatch):
    """Where a GPU is in sight, rules of several processes are unsupported, and the reason says what to do."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    backend = torch_eager.TorchEager("cpu")

    assert "hide it with CUDA_VISIBLE_DEVICES=" in backend.lacks[Capability.PROCESSES]


def test_what_a_device_lacks():
    """On the host nothing is an accelerator; elsewhere nothing is promised of the caller's thread or host memory."""
    host, meta = torch_eager.TorchEager("cpu"), torch_eager.TorchEager("meta")

    assert {str(one) for one in host.lacks} == {"accelerator"}
    assert {*meta.lacks} == {Capability.CALLER_THREAD, Capability.HOST, *SEVERAL_PROCESSES}


def test_driver_version_is_read_from_the_kernel_module():
    """The driver's version is the number behind the module's name."""
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n"

    assert torch_eager.driver_of(text) == "550.54.15"
    assert torch_eager.driver_of("") == "unknown"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_records_its_hardware():
    """A run on CUDA says on which GPU, with which CUDA and which driver."""
    assert {"torch", "gpu", "cuda", "driver"} <= set(torch_eager.backend("cuda").versions)


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="torch makes no device in Python",
)
def test_device_made_in_python_is_judged(hooklaw):
    """The device of the page is judged by rules that hold, that differ as its file says, and that end the process."""
    names = "post-acc.after-accumulate or grad-accum.layout or tensor-hook.return.wrong-type"
    done = hooklaw("run", "--backend", "torch-eager:npy", "--import", "hooklaw_backends.npy_device", "-k", names)

    assert (done.returncode, done.stderr) == (0, "")
    assert ": 2 of 8 rules hold, 6 known divergences, 0 regressions" in done.stdout


def test_derived_backend_keeps_its_expectations(monkeypatch, tmp_path):
    """The file of a device lies under torch's own backend, not under one that has a file of its own."""
    (tmp_path / "torch-eager-meta.toml").write_text("")
    monkeypatch.setattr(torch_eager, "EXPECTATIONS", tmp_path)

    class Derived(torch_eager.TorchEager):
        expectations = tmp_path / "own.toml"

    assert torch_eager.TorchEager("meta").expectations == tmp_path / "torch-eager-meta.toml"
    assert Derived("meta").expectations == tmp_path / "own.toml"
