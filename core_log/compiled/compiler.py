"""Compiles functions for which `object_cache` has no code; imported only then."""

import ctypes
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numba
from numba.core import types

from headwater.core_log.compiled.object_cache import (
    UNUSED,
    CompiledFunction,
    LazyFunction,
    ObjectCode,
)

INTEGERS = {8: "b", 16: "h", 32: "i", 64: "q"}

_numba: Any = numba  # the stubs describe only a part of its parameters
_jitted: dict[CompiledFunction, Any] = {}
_made: dict[str, Any] = {}


def compile_function(native: CompiledFunction, arguments: Sequence[Any]) -> ObjectCode:
    """Returns the object code, including all functions that it calls."""
    kinds = tuple(_numba.typeof(each) for each in arguments)
    dispatcher = _jit(native)
    dispatcher.compile(kinds)
    result = dispatcher.overloads[kinds]
    _check_stands_alone(result.library._final_module)
    _, _, (code, _) = result.library.serialize_using_object_code()
    returned = result.signature.return_type
    is_tuple = isinstance(returned, types.BaseTuple)
    parts = list(returned) if is_tuple else [] if returned == types.none else [returned]
    letters = "".join(map(_letter, parts))
    return ObjectCode(result.fndesc.llvm_func_name, letters, is_tuple, bytes(code))


def _check_stands_alone(module: Any) -> None:
    """Raises if the code calls anything but the C library: loading it would end the process."""
    here = ctypes.CDLL(None)
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration or each.name.startswith("llvm.") or each.name == UNUSED:
            continue
        if each.name.startswith(("Py", "_Py")) or not hasattr(here, each.name):
            raise TypeError(f"compiled code asks for {each.name}, which not every process has")


def _letter(kind: Any) -> str:
    if isinstance(kind, types.Boolean):
        return "?"
    if isinstance(kind, types.Float):
        return "d" if kind.bitwidth == 64 else "f"
    letter = INTEGERS[kind.bitwidth]
    return letter if kind.signed else letter.upper()


def _jit(native: CompiledFunction) -> Any:
    """Returns the same function with the compiler's own types in place of ours."""
    if native not in _jitted:
        function = native.function
        named = {
            name: _find_known(function.__globals__[name])
            for name in function.__code__.co_names
            if name in function.__globals__
        }
        again = FunctionType(function.__code__, {**function.__globals__, **named})
        again.__module__, again.__qualname__ = function.__module__, function.__qualname__
        jit = _numba.njit(boundscheck=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
        _jitted[native] = jit(again)
    return _jitted[native]


def _find_known(value: Any) -> Any:
    if isinstance(value, CompiledFunction):
        return _jit(value)
    if isinstance(value, LazyFunction):
        if value.about not in _made:
            _made[value.about] = value.make()
        return _made[value.about]
    return value
