"""Checks of arguments, and how their errors quote values."""

import operator
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

INT64_MAX = 2**63 - 1
ONLY_INTEGERS = frozenset({int})  # types, exactly
QUOTE = reprlib.Repr()
QUOTE.maxtuple = QUOTE.maxlist = 12
QUOTE.maxstring = QUOTE.maxother = 80


def shown(value: object) -> str:
    """`value` as an error message quotes it: 200 characters at most."""
    try:
        return shortened(QUOTE.repr(value))
    except ValueError:  # Python's limit of digits
        return "a value with a number of thousands of digits"


def shortened(text: object) -> str:
    """`text`, as that of a dtype or of another error, likewise."""
    text = str(text)
    return text if len(text) <= 200 else text[:197] + "..."


def integer(value: object, name: str, minimum: int, maximum: int = INT64_MAX) -> int:
    """`value` as an int from `minimum` to `maximum`; booleans and floats are no integers."""
    if type(value) is not int:
        if isinstance(value, bool):
            raise TypeError(f"{name}: expected an integer, got the boolean {value!r}")
        try:
            value = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"{name}: expected an integer, got {shown(value)}") from None
        except MemoryError:
            raise
        except Exception as error:  # whatever the object's own conversion raises
            raise TypeError(f"{name}: expected an integer, got a {type(value).__name__}") from error
    if not minimum <= value <= maximum:
        most = "2**63 - 1" if maximum == INT64_MAX else maximum
        raise ValueError(f"{name}: expected an integer from {minimum} to {most}, got {shown(value)}")
    return value


def integers(values: object, name: str, minimum: int, lengths: Sequence[int] | None = None) -> tuple[int, ...]:
    """A list, tuple or one-dimensional integer array as a tuple of ints; its length one of `lengths`."""
    if type(values) is not list and type(values) is not tuple:  # both faster to see than any Sequence
        values = _as_sequence(values, name)
    values = tuple(values)  # once: what is used is what was checked, whatever another thread makes of it
    if lengths is not None and len(values) not in lengths:
        wanted = " or ".join(map(str, sorted(set(lengths))))
        raise ValueError(f"{name}: expected {wanted} integers, got {len(values)}: {shown(values)}")
    if all(type(value) is int and minimum <= value <= INT64_MAX for value in values):
        return values
    return tuple(integer(value, f"{name}[{i}]", minimum) for i, value in enumerate(values))


def _as_sequence(values: object, name: str) -> Sequence:
    """`values`, neither text nor times, as a sequence; those of an array, which has a `tolist`, as Python's."""
    try:
        times = getattr(getattr(values, "dtype", None), "kind", "") in ("m", "M")
        found = values.tolist() if hasattr(values, "tolist") and not times else values
        if isinstance(found, Sequence) and not isinstance(found, str | bytes | bytearray):
            return tuple(found)
    except MemoryError:
        raise
    except Exception as error:  # whatever the object's own conversion raises
        raise TypeError(f"{name}: expected a sequence of integers, got a {type(values).__name__}") from error
    raise TypeError(f"{name}: expected a sequence of integers, got {shown(found)}")


def choice(value: object, name: str, choices: Sequence[str]) -> str:
    """`value` if it is one of `choices`."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected one of {', '.join(choices)}, got {shown(value)}")
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {shown(value)}")
    return value


def plain_key(arguments: Iterable[tuple[object, Any]]) -> tuple:
    """Names and values, flat, if these are exactly integers, texts, None, lists or tuples of integers, or the
    `names` of arguments; empty if not."""
    key: list[object] = []
    for name, value in arguments:
        kind = type(value)
        if name == "names":
            value = tuple(value.items())
        elif kind is list or kind is tuple:
            value = tuple(value)
            if not ONLY_INTEGERS.issuperset(map(type, value)):
                return ()
        elif kind is not int and kind is not str and value is not None:
            return ()
        key += (name, value)
    return tuple(key)
