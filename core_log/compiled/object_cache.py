"""Compiled functions whose machine code is cached and then runs without the compiler."""

# Loading the compiler takes a second and 80 MB in every process; cached code takes neither.
# `CompiledSpeed` therefore has missing code compiled by a process of its own.

import ctypes
import hashlib
import json
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from headwater.core_log.foundation.speed import CodeNotCached, is_compiler_elsewhere

FORMAT_VERSION = 2
DIGEST_BYTES = 32
RESULT_BYTES = 64
OK = (0, -2)
"""Return codes of success; the second one means no result."""
UNUSED = "NRT_MemInfo_call_dtor"
"""Would free an array that the code has made; our functions make none."""

_loading = threading.RLock()


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """Cached code, and how to call its function."""

    symbol: str
    returns: str
    """Types of the results, in the format of `struct`."""
    is_tuple: bool
    code: bytes

    def to_bytes(self) -> bytes:
        head = {name: each for name, each in asdict(self).items() if name != "code"}
        whole = json.dumps(head).encode() + b"\n" + self.code
        return hashlib.sha256(whole).digest() + whole

    @classmethod
    def from_bytes(cls, kept: bytes) -> "ObjectCode":
        """Reads cached code; raises ValueError if it was changed: damaged code would end the
        process."""
        digest, whole = kept[:DIGEST_BYTES], kept[DIGEST_BYTES:]
        if hashlib.sha256(whole).digest() != digest:
            raise ValueError("the cached code has changed")
        head, _, code = whole.partition(b"\n")
        return cls(**json.loads(head), code=code)


class CompiledFunction:
    """A function over arrays and whole numbers that calls only functions of its kind. Each
    combination of argument types is compiled once per source and kind of machine; all processes
    share the cache."""

    def __init__(self, function: Callable[..., Any]) -> None:
        assert isinstance(function, FunctionType), "what is compiled is a plain function"
        self.function = function
        self._ready: dict[tuple[Any, ...], Callable[[Sequence[int]], Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        kinds: list[Any] = []
        words: list[int] = []
        for each in arguments:
            _take_apart(each, kinds, words)
        ready = self._ready.get(key := tuple(kinds))
        if ready is None:
            ready = self._prepare(key, arguments)
        return ready(words)

    def _prepare(
        self, kinds: tuple[Any, ...], arguments: Sequence[Any]
    ) -> Callable[[Sequence[int]], Any]:
        with _loading:
            if kinds not in self._ready:
                machine = _find_cached(self.function, kinds)
                if machine is None:
                    if is_compiler_elsewhere():
                        raise CodeNotCached(self.function.__qualname__)
                    from headwater.core_log.compiled.compiler import (
                        compile_function,  # imported late: the compiler
                    )

                    machine = compile_function(self, arguments)
                    _keep(self.function, kinds, machine)
                self._ready[kinds] = _callable_of(machine, kinds)
            return self._ready[kinds]


@dataclass(frozen=True, slots=True)
class LazyFunction:
    """A function for compiled functions to call that only the compiler can make."""

    make: Callable[[], Any]
    about: str
    """Description that is part of the cache key."""


def late(about: str, make: Callable[[], Any]) -> Any:
    return LazyFunction(make, about)


def _take_apart(value: Any, kinds: list[Any], words: list[int]) -> None:
    """Returns the types to compile for, and the arguments as the compiler's own calls pass them."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        kinds.append((value.dtype.str, value.ndim, order, flags.writeable, flags.aligned))
        words += (0, 0, value.size, value.itemsize, value.ctypes.data)
        words += value.shape
        words += value.strides
    elif isinstance(value, bool | np.bool_):
        kinds.append("bool")
        words.append(int(value))
    elif isinstance(value, int | np.int64):
        kinds.append("int")
        words.append(int(value))
    elif isinstance(value, tuple):
        kinds.append(len(value))
        for each in value:
            _take_apart(each, kinds, words)
    else:
        raise TypeError(f"compiled functions do not take a {type(value).__name__}")


def _callable_of(machine: ObjectCode, kinds: tuple[Any, ...]) -> Callable[[Sequence[int]], Any]:
    slots = [slot for kind in kinds for slot in _slots(kind)]
    address = _engine()(machine)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *slots)
    function, result = prototype(address), struct.Struct(machine.returns)
    assert result.size <= RESULT_BYTES, "a result is a few numbers"

    def call(words: Sequence[int]) -> Any:
        room, problem = ctypes.create_string_buffer(RESULT_BYTES), ctypes.c_void_p()
        status = function(ctypes.addressof(room), ctypes.addressof(problem), *words)
        if status not in OK:
            raise RuntimeError(f"compiled code has failed: {machine.symbol}, {status}")
        found = result.unpack_from(room)
        if machine.is_tuple:
            return found
        return found[0] if found else None

    return call


def _slots(kind: Any) -> Iterator[Any]:
    if kind == "bool":
        yield ctypes.c_uint8
    elif kind == "int":
        yield ctypes.c_int64
    elif isinstance(kind, tuple):
        _, dimensions, *_ = kind
        yield from [ctypes.c_int64] * (5 + 2 * dimensions)


@cache
def _engine() -> Callable[[ObjectCode], int]:
    """Loads code into this process and returns where its function begins."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    if llvm.address_of_symbol(UNUSED) is None:
        ending = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
        llvm.add_symbol(UNUSED, ending)

    def load(machine: ObjectCode) -> int:
        engine.add_object_file(llvm.ObjectFileRef.from_data(machine.code))
        engine.finalize_object()
        address: int = engine.get_function_address(machine.symbol)
        return address

    return load


def _find_cached(function: FunctionType, kinds: tuple[Any, ...]) -> ObjectCode | None:
    name = _name_of(function, kinds)
    for directory in _directories(function):
        try:
            return ObjectCode.from_bytes((directory / name).read_bytes())
        except (OSError, ValueError):
            continue
    return None


def _keep(function: FunctionType, kinds: tuple[Any, ...], machine: ObjectCode) -> None:
    """Stores code in the first writable directory; without any, the next process compiles again."""
    name = _name_of(function, kinds)
    for directory in _directories(function):
        beside = directory / f"{name}.{os.getpid()}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(machine.to_bytes())
            beside.replace(directory / name)
        except OSError:
            continue
        return


def _directories(function: FunctionType) -> list[Path]:
    """Yields the directories: beside the source, like Python's own cache, then the user's cache."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return [
        Path(function.__code__.co_filename).parent / "__pycache__",
        Path(cache_home) / "headwater",
    ]


def _name_of(function: FunctionType, kinds: tuple[Any, ...]) -> str:
    digest = hashlib.sha256(repr((_machine_name(), kinds)).encode())
    for part in sorted(set(_sources(function))):
        digest.update(part)
    module = function.__module__.rpartition(".")[2]
    return f"{module}.{function.__name__}-{digest.hexdigest()[:24]}.native"


@cache
def _machine_name() -> tuple[object, ...]:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return FORMAT_VERSION, version("numba"), llvm.get_host_cpu_name(), features


def _sources(function: FunctionType) -> Iterator[bytes]:
    """Returns everything that the code depends on: bytecode, and the values of its names."""
    seen: set[str] = set()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        assert not any(isinstance(part, CodeType) for part in each.__code__.co_consts)
        yield each.__code__.co_code + repr(each.__code__.co_consts).encode()
        for name in each.__code__.co_names:
            if name not in each.__globals__ or name in seen:
                continue
            seen.add(name)
            value = each.__globals__[name]
            if isinstance(value, CompiledFunction):
                waiting.append(value.function)
            elif isinstance(value, LazyFunction):
                yield f"{name}: {value.about}".encode()
            elif isinstance(value, np.ndarray):
                yield name.encode() + value.dtype.str.encode() + value.tobytes()
            elif isinstance(value, int | float | bytes | np.generic):
                yield f"{name}: {type(value).__name__} {value!r}".encode()
