"""Probes of the core verbs: values, shapes and dtypes survive, and what a tensor says of itself is true."""

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.check._probe import Tried, probe

VALUES = [1.5, -2.25]
ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
FLOATS = {
    "float64": Capability.FLOAT64,
    "float16": Capability.FLOAT16,
    "bfloat16": Capability.BFLOAT16,
}


@probe(brief=True)
def values(tried: Tried) -> None:
    """What `tensor` is given comes back from `tolist`, as numbers of Python."""
    mend = "return the numbers as tensor holds them, as nested lists of Python's float, without rounding"
    tried.expect(VALUES, "tolist", tried.tensor(VALUES), mend=mend)
    tried.expect([0.123456789], "tolist", tried.tensor([0.123456789]), mend=mend)
    tried.expect(ROWS, "tolist", tried.tensor(ROWS), mend=mend)
    tried.expect(2.5, "tolist", tried.sum(tried.tensor([1.0, 1.5])), mend="a 0-d tensor is one number, not a list")


@probe(brief=True)
def kinds(tried: Tried) -> None:
    """`is_tensor` knows the framework's tensors, and nothing else; names and shapes have Python's own types."""
    x, rows = tried.tensor(VALUES), tried.tensor(ROWS)
    tried.expect(True, "is_tensor", x, mend="return True for what `tensor` returns, as a bool of Python")
    for other in (None, 1.0, VALUES, "text"):
        tried.expect(False, "is_tensor", other, mend="return isinstance(value, the framework's type of tensors)")
    for shape, tensor in (((2,), x), ((2, 3), rows), ((), tried.sum(x))):
        tried.expect(shape, "shape", tensor, mend="return a tuple of Python's int: tuple(tensor.shape)")
    tried.expect("float32", "dtype", x, mend="return PyTorch's name of the dtype as a text")
    device = tried.device(x)
    if not isinstance(device, str):
        tried.expect("cpu", "device", x, mend="return the device's name as a text: str(tensor.device)")
    tried.expect(device, "device", rows, mend="tensors made alike are on one device: return its name")


@probe(brief=True)
def leaves(tried: Tried) -> None:
    """A leaf, a tensor without gradients and a result are told apart."""
    leaf, plain = tried.tensor(VALUES, requires_grad=True), tried.tensor(VALUES)
    result = tried.compute(leaf, "*", 2.0)
    for tensor, requires_grad, is_leaf in ((leaf, True, True), (plain, False, True), (result, True, False)):
        tried.expect(requires_grad, "requires_grad", tensor, mend="return whether gradients flow to it, as a bool")
        tried.expect(is_leaf, "is_leaf", tensor, mend="return whether the user made it, as a bool")


@probe(brief=True)
def arithmetic(tried: Tried) -> None:
    """+, - and * work on tensors and numbers, and sum, exp, detach and clone return what they should."""
    x, y = tried.tensor([1.0, 2.0]), tried.tensor([3.0, 5.0])
    cases = ((x, "+", y, [4.0, 7.0]), (x, "-", y, [-2.0, -3.0]), (x, "*", y, [3.0, 10.0]))
    numbers = ((x, "+", 2, [3.0, 4.0]), (x, "-", 2.0, [-1.0, 0.0]), (x, "*", 3, [3.0, 6.0]))
    for left, sign, right, expected in (*cases, *numbers):
        tried.expect(expected, "tolist", tried.compute(left, sign, right), mend=f"{sign} works element by element")
    tried.expect([1.0, 2.718281828], "tolist", tried.exp(tried.tensor([0.0, 1.0])))
    tried.expect(3.0, "tolist", tried.sum(x))


@probe(brief=True)
def copies(tried: Tried) -> None:
    """`detach` drops the history, `clone` keeps it."""
    x = tried.tensor(VALUES, requires_grad=True)
    detached, cloned = tried.detach(x), tried.clone(x)
    for verb, made, requires_grad in (("detach", detached, False), ("clone", cloned, True)):
        tried.expect_tensor(made, verb)
        tried.expect(VALUES, "tolist", made)
        tried.expect(requires_grad, "requires_grad", made)
    tried.expect(False, "is_leaf", cloned, mend="a clone is a differentiable copy: the framework computes it")


@probe(brief=True)
def gradients_are_kept(tried: Tried) -> None:
    """`grad_of` returns what `set_grad` assigned."""
    x = tried.tensor(VALUES, requires_grad=True)
    tried.expect(None, "grad_of", x, mend="return None where there is no gradient")
    tried.set_grad(x, tried.tensor([3.0, 4.0]))
    grad = tried.grad_of(x)
    tried.expect_tensor(grad, "grad_of")
    tried.expect([3.0, 4.0], "tolist", grad)
    tried.set_grad(x, None)
    tried.expect(None, "grad_of", x, mend="set_grad(tensor, None) removes the gradient")


@probe()
def backward(tried: Tried) -> None:
    """`call` runs a function of tensors, and `backward` accumulates into the leaf."""
    x = tried.tensor([1.0, 2.0], requires_grad=True)

    def square(tensor: object) -> object:
        return tried.backend.sum(tensor * tensor)  # type: ignore[operator]

    loss = tried.call("call", square, x)
    tried.expect_tensor(loss, "call", "what the function returns, a tensor")
    tried.expect(5.0, "tolist", loss)
    tried.expect(None, "backward", loss, mend="return nothing: the gradients are in the leaves")
    grad = tried.grad_of(x)
    tried.expect_tensor(grad, "grad_of", "the gradient that backward accumulated, a tensor")
    tried.expect([2.0, 4.0], "tolist", grad, mend="pass the framework's gradient on as it is")


@probe()
def dtypes(tried: Tried) -> None:
    """A tensor has the dtype that it was asked for, and keeps values that are exact in it."""
    for name, capability in FLOATS.items():
        if tried.can(capability):
            _dtype(tried, name, [0.5, -2.0])
    if tried.can(Capability.COMPLEX):
        _dtype(tried, "complex64", [1 + 2j, -0.5j])
    if tried.can(Capability.INTEGER):
        _dtype(tried, "int64", [3, -4])
        _dtype(tried, "bool", [True, False])


def _dtype(tried: Tried, name: str, values: list[object]) -> None:
    made = tried.tensor(values, dtype=name)
    tried.expect(name, "dtype", made, mend="make the tensor with the dtype that was asked for, and return its name")
    tried.expect(values, "tolist", made, mend=f"a {name} tensor holds these values exactly: return them")


@probe(Capability.FLOAT64)
def digits(tried: Tried) -> None:
    """A float64 tensor keeps every digit of Python's float."""
    value = 0.1 + 2**-50
    got = tried.tolist(tried.tensor([value], dtype="float64"))
    if got != [value]:
        given = f"tolist(tensor([{value!r}], dtype='float64'))"
        tried.fault("tolist", given, f"[{value!r}]", repr(got), "return the number with all its digits")


@probe(Capability.SEED_GRADIENT)
def root_gradient(tried: Tried) -> None:
    """`backward` starts at the gradient that it is given."""
    x = tried.tensor([1.0, 2.0], requires_grad=True)
    tried.backward(tried.compute(x, "*", 2.0), tried.tensor([1.0, 10.0]))
    grad = tried.grad_of(x)
    tried.expect_tensor(grad, "grad_of", "the gradient that backward accumulated, a tensor")
    tried.expect([2.0, 20.0], "tolist", grad, mend="backward takes the root's gradient: pass it on")
