"""The offload strategies: gradients and buffers are the plain step's, and what moves is what should."""

import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402 - needs torch

from hooklaw_backends.offload import STRATEGIES, find  # noqa: E402 - idem
from hooklaw_backends.offload.asynchronous import MIB, Async, AsyncAll  # noqa: E402 - idem
from hooklaw_backends.offload.choices import Both, Fraction, Sizes  # noqa: E402 - idem
from hooklaw_backends.offload.disk import DiskRaw, DiskSave  # noqa: E402 - idem
from hooklaw_backends.offload.layout import flatten  # noqa: E402 - idem
from hooklaw_backends.offload.lossy import Bf16, Int8  # noqa: E402 - idem
from hooklaw_backends.offload.on_cpu import CheckedCopy  # noqa: E402 - idem
from hooklaw_backends.offload.plain import KeepAll  # noqa: E402 - idem
from offload_models import attention, conv, cubes, distance, leaf, mlp, packed, same, step  # noqa: E402 - idem

SMALL = ["async:min=1", "async:min=1,cap=600,window=600", "checkpoint:2+async:min=1", "fraction:0.3+async:min=1"]
PARTS = [
    "modules:*1*+disk-raw",
    "sizes:1KiB..4KiB+disk-raw",
    "checkpoint:1+disk-save",
    "fraction:1+sizes:2KiB+disk-raw",
]
LOSSLESS = [name for name, shipped in STRATEGIES.items() if not shipped.text.startswith("LOSSY")]
LOSSY = [*sorted(STRATEGIES.keys() - LOSSLESS), "bf16+disk-raw", "int8+async:min=1", "checkpoint+int8"]
PACKERS = [KeepAll, CheckedCopy, DiskRaw, DiskSave, AsyncAll]
COPYING = [CheckedCopy, DiskRaw, DiskSave, AsyncAll]


WORKLOADS = [conv, mlp, attention]


@pytest.fixture(autouse=True)
def seeded():
    """Start every test from the same numbers, on one thread: a busy machine makes two wait for each other."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def counted(packer):
    """Have a packer count from now on."""
    assert not packer.counters()["packs"]
    return packer


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("spec", [*LOSSLESS, *SMALL, *PARTS])
def test_lossless_strategies_change_nothing(spec, workload):
    """Gradients and buffers are bit for bit those of the plain step, the running statistics of batch norm included."""
    if workload is attention and spec.startswith("checkpoint:"):
        spec = spec.replace(":1", "").replace(":2", "")
    model, x = workload()
    expected, found = step(model, x), step(model, x, strategy := find(spec))
    strategy.close()

    assert strategy.lossless
    assert not strategy.tolerance
    assert same(expected[0], found[0])
    assert same(expected[1], found[1])


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("spec", LOSSY)
def test_lossy_strategies_say_so_and_stay_within_their_tolerance(spec, workload):
    """A lossy strategy is labelled, and its gradients are wrong by no more than it says."""
    model, x = workload()
    expected, found = step(model, x), step(model, x, strategy := find(spec))

    assert not strategy.lossless
    assert 0 < distance(found[0], expected[0]) < strategy.tolerance
    assert same(expected[1], found[1])


@pytest.mark.parametrize("make", PACKERS)
def test_handles_are_not_used_up(make):
    """Backward runs any number of times over one graph, and a single saved tensor is unpacked at will."""
    x = leaf()
    loss = packed(make(), x)
    once = torch.autograd.grad(loss, x, retain_graph=True)[0]
    saved = loss.grad_fn.next_functions[0][0]

    assert torch.equal(saved._saved_self, x * 2)
    for _ in range(2):
        assert torch.equal(once, torch.autograd.grad(loss, x, retain_graph=True)[0])


@pytest.mark.parametrize("make", PACKERS)
def test_two_graphs_are_alive_at_once(make):
    """Graphs of one packer do not disturb each other, whichever is run first."""
    packer, x, y = make(), leaf(), leaf(3000)
    first, second = packed(packer, x), packed(packer, y)
    first.backward()
    second.backward()

    assert cubes(x)
    assert cubes(y)


@pytest.mark.parametrize("make", PACKERS)
def test_threads_share_a_packer(make):
    """Several threads inside one packer get their own gradients, and the hooks stay in the thread that entered."""
    packer, wrong = counted(make()), []

    def work(n):
        for _ in range(5):
            x = leaf(n)
            packed(packer, x).backward()
            wrong.append(not cubes(x))

    threads = [threading.Thread(target=work, args=(1000 + 100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == [False] * 20
    assert packer.counters()["packs"] == 20


@pytest.mark.parametrize("make", PACKERS)
def test_change_in_place_is_never_silent(make):
    """A saved result that is changed before backward gives the right gradient or an error, as it does without hooks."""
    x = leaf(8)
    with make():
        y = (x * 1).exp()
    expected = y.detach().clone()
    y.add_(1)
    if make in COPYING:
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], expected)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(y.sum(), x)


@pytest.mark.parametrize("make", PACKERS)
def test_layouts_and_lazy_bits_come_back(make):
    """Strides, expanded dimensions, gaps, and the bits of conjugation and negation are those of the saved tensor."""
    base = torch.randn(4, 6)
    complex_ = torch.randn(3, 4, dtype=torch.complex64)
    layouts = [base.t(), base[:, ::2], base[:1].expand(5, 6), base[1:, 2:4], torch.tensor(2.0), base.unfold(1, 3, 1)]
    layouts += [base[::3, 0:1].expand(2, 4), complex_.conj(), complex_.conj().imag, complex_.t().conj(), base[:0]]
    for tensor in [one.clone(memory_format=torch.preserve_format) for one in layouts] + layouts:
        packer = make()
        back = packer.unpack(packer.pack(tensor))

        assert torch.equal(back, tensor)
        assert (back.stride(), back.is_conj(), back.is_neg()) == (tensor.stride(), tensor.is_conj(), tensor.is_neg())
        assert (back.dtype, back.device, back.shape) == (tensor.dtype, tensor.device, tensor.shape)


@pytest.mark.parametrize("make", PACKERS)
def test_what_is_not_plainly_strided_passes_through(make):
    """Sparse tensors and subclasses come back as what they were."""

    class Own(torch.Tensor):
        pass

    sparse, own = torch.eye(3).to_sparse(), torch.ones(3).as_subclass(Own)
    packer = make()

    assert packer.unpack(packer.pack(sparse)).layout == torch.sparse_coo
    assert type(packer.unpack(packer.pack(own))) is Own


@pytest.mark.parametrize("make", [DiskRaw, DiskSave, AsyncAll, CheckedCopy])
def test_second_derivative(make):
    """The saved tensors that come back are part of the graph again, for a derivative of the derivative."""
    x = leaf(16)
    loss = packed(make(), x)
    first = torch.autograd.grad(loss, x, create_graph=True)[0]

    assert torch.allclose(torch.autograd.grad(first.sum(), x)[0], 48 * x)


# what moves, and what stays
@pytest.mark.parametrize("make", PACKERS)
def test_counting_begins_when_it_is_asked_for(make):
    """A packer counts nothing until its counters are read, and then every pack and unpack."""
    packer, x = make(), leaf()
    packed(packer, x).backward()
    counted(packer)
    packed(packer, x).backward()
    found = packer.counters()

    assert (found["packs"], found["unpacks"]) == (1, 1)
    assert found["bytes_packed"] == x.nbytes


def test_what_is_named_after_torch_is_torch_s():
    """The strategies called save-on-cpu enter torch's own class, and hook-only returns what it is given."""
    tensor = torch.ones(3)

    assert type(find("save-on-cpu").context()) is torch.autograd.graph.save_on_cpu
    assert isinstance(find("save-on-cpu-pinned").context(), torch.autograd.graph.save_on_cpu)
    assert find("hook-only").context().pack_hook(tensor) is tensor
    assert find("hook-only").context().unpack_hook(tensor) is tensor


def test_parameters_stay_by_their_storage():
    """Neither a weight nor its transposed view, nor a buffer of the model, is moved."""
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    strategy, x = counted(find("disk-raw")), torch.randn(4, 8)
    strategy.wrap(model)
    with strategy.context():
        model(x)
    frozen = nn.Linear(8, 8).requires_grad_(requires_grad=False)
    strategy.wrap(frozen)
    with strategy.context():
        (frozen(leaf(8)) * frozen.weight).sum()
    counts = strategy.counters()

    assert counts["bytes_out"] == 2 * x.nbytes
    assert counts["kept"] == 3


def test_parameters_stay_though_nobody_named_their_model():
    """A packer that was told of no model finds a leaf that requires grad, and the base of a view, to be one."""
    packer, x = counted(DiskRaw()), leaf(64).view(8, 8)
    with packer:
        nn.Linear(8, 8, bias=False)(x * 1).sum()

    assert packer.counters()["kept"] == 1
    assert packer.counters()["bytes_out"] == x.nbytes


def test_elements_go_out_once():
    """A result that is saved three times, once as a view, is moved once; each handle still gives its own shape."""
    packer, x = counted(DiskRaw()), leaf(64)
    with packer:
        y = (x * 1).view(8, 8)
        loss = (y.exp().log() * y.t()).sum() + y.pow(2).sum()
    counts = packer.counters()
    loss.backward()

    assert counts["deduplicated"] >= 2
    assert counts["bytes_unique"] == counts["bytes_out"] < counts["bytes_packed"]
    assert packer.disk.file_bytes() == counts["bytes_out"]


def test_addresses_that_are_used_again_are_no_duplicates():
    """Memory that was freed and given to another tensor is not taken for the one that was moved from there."""
    packer = counted(DiskRaw())
    handles = [packer.pack(torch.full((1000,), float(n))) for n in range(50)]

    assert [packer.unpack(handle)[0].item() for handle in handles] == list(range(50))
    assert not packer.counters()["deduplicated"]


def test_tensors_changed_between_two_saves_are_no_duplicates():
    """The version counter tells a tensor from what it was before it was changed in place."""
    packer, tensor = DiskRaw(), torch.zeros(10)
    first = packer.pack(tensor)
    second = packer.pack(tensor.add_(1))

    assert packer.unpack(first).sum() == 0
    assert packer.unpack(second).sum() == 10


def test_threshold_keeps_small_tensors():
    """Below the threshold, 1 MiB unless told, a tensor stays."""
    packer = counted(Async())
    small, large = packer.pack(torch.zeros(MIB // 4 - 1)), packer.pack(torch.zeros(MIB // 4))

    assert packer.counters()["kept"] == 1
    assert packer.counters()["bytes_out"] == MIB
    assert [packer.unpack(one).numel() for one in (small, large)] == [MIB // 4 - 1, MIB // 4]


def test_fraction_is_kept_to_and_spread():
    """Of equal tensors every fourth moves at a quarter, and what stayed is not moved when it is saved again."""
    choice = Fraction(0.25)
    assert [choice.takes(8) for _ in range(8)] == [False, False, False, True] * 2

    packer, tensor = counted(DiskRaw(choice=Fraction(0.5))), torch.zeros(8)
    handles = [packer.pack(tensor) for _ in range(4)]

    assert packer.counters()["bytes_out"] == 0
    assert len(handles) == packer.counters()["kept"]


# checkpoint and chosen modules
def test_checkpoint_saves_only_the_boundaries():
    """Between two segments one tensor is saved, and inside them none until backward."""
    model, x = mlp()
    strategy = counted(find("checkpoint:3+disk-raw"))
    run = strategy.wrap(model)
    with strategy.context():
        loss = run(x).sum()
    loss.backward()

    assert strategy.counters()["bytes_out"] == 3 * x.nbytes


def test_model_is_given_back_as_it_was():
    """After close the model runs its own forward again, without hooks."""
    for spec in ("checkpoint:2", "modules:1+disk-raw"):
        model, x = mlp()
        strategy = find(spec)
        strategy.wrap(model)
        strategy.close()
        model(x)

        assert "forward" not in vars(model)
        assert not model[1]._forward_hooks
        assert not model[1]._forward_pre_hooks


def test_checkpoint_twice_over_one_graph():
    """With retain_graph every backward computes anew from the same buffers, and leaves the model's alone."""
    model, x = conv()
    expected = step(model, x)
    strategy = find("checkpoint:2")
    run = strategy.wrap(model.train())
    torch.manual_seed(1)
    loss = run(x).square().sum()
    for _ in range(2):
        model.zero_grad()
        loss.backward(retain_graph=True)

        assert same(expected[0], [one.grad for one in model.parameters()])
        assert same(expected[1], list(model.buffers()))


def test_only_chosen_modules_are_packed():
    """Modules are chosen by name or by class, and the packer is left even where a module raises."""
    model, x = mlp()
    strategy = counted(find("modules:GELU+keep-all"))
    strategy.wrap(model)
    with strategy.context():
        model(x)
    assert strategy.counters()["packs"] == 3

    with pytest.raises(TypeError):
        model[1]("no tensor")
    assert (leaf() * 2).pow(2).grad_fn._saved_self is not None
    assert strategy.counters()["packs"] == 3


def test_sizes_are_bounds_and_choices_agree():
    """Sizes take what lies between the bounds, both choose what each would, and a fraction begins anew when entered."""
    sizes, half = Sizes(8, 16), Fraction(0.5)
    assert [sizes.takes(nbytes) for nbytes in (7, 8, 16, 17)] == [False, True, True, False]

    both = Both(sizes, half)
    assert [both.takes(nbytes) for nbytes in (8, 4, 8)] == [False, False, True]
    both.takes(8)
    both.begin()
    assert not both.takes(8)


def test_flat_run_is_an_alias_wherever_it_can_be():
    """Only a tensor with gaps is copied; an expanded one stays as short as its storage."""
    base = torch.randn(4, 6)

    assert flatten(base.t())[0].data_ptr() == base.data_ptr()
    assert flatten(base[:1].expand(1000, 6))[0].numel() == 6
    assert flatten(base[:, ::3])[0].numel() == 8


def test_int8_keeps_the_neighbours_of_what_is_not_finite():
    """An infinity comes back as not finite, the elements beside it as they were."""
    tensor = torch.linspace(-1, 1, 512)
    tensor[3] = torch.inf
    packer = Int8()
    back = packer.unpack(packer.pack(tensor))

    assert back.isfinite().sum() == 511
    assert (back[4:] - tensor[4:]).abs().max() <= 1 / 127


def test_bf16_overflows_to_its_largest_number():
    """A float32 beyond bfloat16's range stays finite, an infinity infinite."""
    packer = Bf16()
    back = packer.unpack(packer.pack(torch.tensor([3.4e38, -torch.inf])))

    assert back.isfinite().tolist() == [True, False]
