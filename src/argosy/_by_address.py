"""Calls by address: kernels call compiled functions of policies that they do not know when they are compiled.

This module imports Numba: import it late. An address is valid only in the process in which it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from argosy._jit import entry_point

ir: Any = import_module("llvmlite.ir")
types: Any = import_module("numba").types


def intrinsic(function: Callable[..., Any]) -> Any:
    """Let kernels call what this function writes in the compiler's own language."""
    return import_module("numba.extending").intrinsic(function)


FLOAT_BYTES = 8
ORDER = types.float64(*[types.int64] * 7, types.float64)  # the signature of `call_order`


@cache
def address_of(function: Callable[..., float]) -> int:
    """Compile a function with the signature ORDER, or load it from the cache, and return its address."""
    compiled: Any = entry_point(function, called_by_address=True)
    compiled.compile(ORDER)
    found = compiled.overloads[ORDER.args]
    _alive.append(compiled)
    return int(found.library.get_pointer_to_function(found.fndesc.llvm_cfunc_wrapper_name))


_alive: list[Any] = []  # compiled functions live as long as the process, because their addresses are passed around


@intrinsic
def start_of(typing_context: Any, array: Any) -> Any:
    """Return the address of an array's first element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, value=arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic
def floats_at(typing_context: Any, address: Any, rows: Any, columns: Any) -> Any:
    """Return the floats at an address as an array [rows, columns]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        populate_array: Any = import_module("numba.np.arrayobj").populate_array  # late: it is slow to load
        address, *shape = arguments
        size = context.get_constant(types.intp, FLOAT_BYTES)
        array = context.make_array(signature.return_type)(context, builder)
        populate_array(
            array,
            data=builder.inttoptr(address, array.data.type),
            shape=shape,
            strides=[builder.mul(shape[1], size), size],
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()

    return types.Array(types.float64, 2, "C")(*[types.int64] * 3), generate


@intrinsic
def call_order(
    typing_context: Any,
    address: Any,
    columns: Any,
    stride: Any,
    jobs: Any,
    memory: Any,
    size: Any,
    free: Any,
    running: Any,
    now: Any,
) -> Any:
    """Call the order at an address: `order(columns, stride, jobs, memory, size, free, running, now)`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole, number = ir.IntType(64), ir.DoubleType()
        function = ir.FunctionType(number, [whole] * 7 + [number]).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], function), arguments[1:])

    return types.float64(*[types.int64] * 8, types.float64), generate
