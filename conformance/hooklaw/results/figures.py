"""Figures with their units, as a person reads them: three digits, and a dash for what was not measured."""

ABSENT = "\u2013"
TIMES = "\u00d7"
DIVIDED = "\u00f7"
SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
CLOCK = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def size(count: float) -> str:
    """Return bytes in a unit that suits them, e.g. ``48.2 GB``."""
    return _in_unit(count, SIZES) if count else ABSENT


def size_up(count: int) -> str:
    """Return bytes rounded up, so that the size shown is enough."""
    if not count:
        return ABSENT
    step = 10 ** max(0, len(str(count)) - 3)
    return size(-(-count // step) * step)


def seconds(time: float) -> str:
    """Return a time in a unit that suits it, e.g. ``35.2 ms``."""
    return _in_unit(time, CLOCK) if time else ABSENT


def rate(speed: float) -> str:
    """Return bytes a second."""
    return f"{size(speed)}/s" if speed else ABSENT


def times(ratio: float) -> str:
    """Return a ratio, e.g. ``1.52``."""
    return digits(ratio) if ratio else ABSENT


def percent(share: float) -> str:
    """Return a share, e.g. ``91%``."""
    return f"{share:.0%}"


def error(norm: float) -> str:
    """Return a relative error; 0 stays 0, since a lossless strategy must show it."""
    return f"{norm:.1e}".replace("e-0", "e-") if 0 < norm < 0.1 else digits(norm, 2)  # noqa: PLR2004 - larger errors read better without an exponent


def budget(count: float) -> tuple[str, str]:
    """Return a round number of bytes near this one, as number and unit."""
    number, _, unit = _in_unit(count, SIZES, places=2).partition(" ")
    return number, unit


def digits(number: float, places: int = 3) -> str:
    """Return a number to so many digits, without an exponent."""
    if not number:
        return "0"
    exponent = int(f"{number:.{places - 1}e}".partition("e")[2])
    return f"{number:.{max(0, places - 1 - exponent)}f}"


def _in_unit(amount: float, units: tuple[tuple[str, float], ...], places: int = 3) -> str:
    unit, factor = next((pair for pair in units if amount >= pair[1] * 0.9995), units[-1])
    return f"{digits(amount / factor, places)} {unit}"
