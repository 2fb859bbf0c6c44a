"""`Lowering`: from typed code to LLVM code, without what kernels do not need.

Numba writes about twenty instructions to read an element of an array and forty for a loop over a range, reads every
variable once more before it is overwritten or goes out of scope, and looks up what `a + b` of two floats means in four
ways. LLVM then takes all of that away again. Here the common cases are written as they will be; everything else is
numba's. The machine code does the same.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

from llvmlite import ir as llvm
from numba.core import cgutils, ir, ir_utils, lowering, types
from numba.core.compiler_machinery import register_pass
from numba.core.errors import new_error_context  # type: ignore[attr-defined]
from numba.core.typed_passes import BaseNativeLowering
from numba.np import arrayobj

#: operators of two numbers that numba has no special ways for when one of them is constant
PLAIN = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.eq, operator.ne,
    operator.lt, operator.le, operator.gt, operator.ge,
}  # fmt: skip


@cache
def _holds_references(models: Any, kind: Any) -> bool:
    return models[kind].contains_nrt_meminfo()


class _Lower(lowering.Lower):
    _disable_sroa_like_opt = False  # that is for debuggers

    def lower_block(self, block: Any) -> None:
        self.pre_block(block)
        for inst in block.body:
            self.loc = inst.loc
            try:
                self.lower_inst(inst)
            except Exception:
                with new_error_context('lowering "{inst}" at {loc}', inst=inst, loc=self.loc):
                    raise
        self.post_block(block)

    def lower_inst(self, inst: Any) -> None:
        if isinstance(inst, ir.Assign):
            value = self.lower_assign(self.typeof(inst.target.name), inst)
            self.storevar(value, inst.target.name, inst.value.index if isinstance(inst.value, ir.Arg) else None)
        elif isinstance(inst, ir.Del):
            self.delvar(inst.value)
        elif isinstance(inst, ir.StaticSetItem) and isinstance(self.typeof(inst.target.name), types.Array):
            self.lower_setitem(inst.target, inst.index_var, inst.value, self.fndesc.calltypes[inst])
        else:
            super().lower_inst(inst)

    # -- variables: only those that hold references have an old value to let go --

    def _counts(self, kind: Any) -> bool:
        return self.context.enable_nrt and _holds_references(self.context.data_model_manager, kind)

    def incref(self, typ: Any, val: Any) -> None:
        if self._counts(typ):
            super().incref(typ, val)

    def decref(self, typ: Any, val: Any) -> None:
        if self._counts(typ):
            super().decref(typ, val)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        kind = self.typeof(name)
        if argidx is None and self._counts(kind):
            super().storevar(value, name)
            return
        self._alloca_var(name, kind)
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def loadvar(self, name: str) -> Any:
        if name in self._blk_local_varmap:
            return self._blk_local_varmap[name]
        return self.builder.load(self.getvar(name))

    def delvar(self, name: str) -> None:
        if self._counts(self.typeof(name)):
            super().delvar(name)
        elif name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        return cgutils.alloca_once(self.builder, lltype, name=name)

    # -- elements of arrays --

    def _element(self, array: Any, index: Any, kind: Any) -> Any:
        """Where array[index] lies if index is a number for each axis, given its type in the signature."""
        array_type = self.typeof(array.name)
        if not isinstance(array_type, types.Array) or array_type.layout == "A" or self.context.enable_boundscheck:
            return None
        kinds = [*kind] if isinstance(kind, types.BaseTuple) else [kind]  # type: ignore[misc]
        if len(kinds) != array_type.ndim or not all(isinstance(k, types.Integer) for k in kinds):
            return None
        builder, value = self.builder, self.loadvar(array.name)
        position = self.context.cast(builder, self.loadvar(index.name), self.typeof(index.name), kind)
        positions = [position] if kinds[0] is kind else cgutils.unpack_tuple(builder, position, len(kinds))
        data, shape = self._fields(value, array_type, "data", "shape")
        sizes = cgutils.unpack_tuple(builder, shape, array_type.ndim)
        steps = [arrayobj.fix_integer_index(self.context, builder, *each) for each in zip(kinds, positions, sizes)]
        if array_type.layout == "F":
            steps, sizes = steps[::-1], sizes[::-1]
        place = steps[0]
        for step, size in zip(steps[1:], sizes[1:]):
            place = builder.add(builder.mul(place, size), step)
        return builder.gep(data, [place])

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        pointer = self._element(value, index, signature.args[1])
        if pointer is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        item = arrayobj.load_item(self.context, self.builder, self.typeof(value.name), pointer)
        return self.context.cast(self.builder, item, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        pointer = self._element(target_var, index_var, signature.args[1])
        if pointer is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        array_type = self.typeof(target_var.name)
        value, kind = self.loadvar(value_var.name), self.typeof(value_var.name)
        for wanted in (signature.args[2], array_type.dtype):
            value, kind = self.context.cast(self.builder, value, kind, wanted), wanted
        arrayobj.store_item(self.context, self.builder, array_type, value, pointer)
        return None

    # -- structures --

    def _fields(self, value: Any, kind: Any, *names: str) -> list[Any]:
        model = self.context.data_model_manager[kind]
        return [self.builder.extract_value(value, model.get_field_position(name)) for name in names]

    def _packed(self, kind: Any, **fields: Any) -> Any:
        model, whole = self.context.data_model_manager[kind], self.context.get_value_type(kind)(llvm.Undefined)
        for name, value in fields.items():
            whole = self.builder.insert_value(whole, value, model.get_field_position(name))
        return whole

    # -- operators and loops --

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        kind = self.typeof(expr.value.name) if "value" in expr._kws else None
        if expr.op == "static_getitem" and isinstance(kind, types.Array):
            return self.lower_getitem(resty, expr, expr.value, expr.index_var, self.fndesc.calltypes[expr])
        if expr.op == "getattr" and expr.attr == "shape" and isinstance(kind, types.Array):
            return self._fields(self.loadvar(expr.value.name), kind, "shape")[0]
        if self._makes_range(expr) and isinstance(resty, types.RangeType):
            return self._range(resty, expr)
        if expr.op == "getiter" and isinstance(kind, types.RangeType):
            return self._start_of_range(resty, expr)
        if expr.op == "iternext" and isinstance(kind, types.RangeIteratorType):
            return self._next_of_range(resty, expr)
        if expr.op in ("pair_first", "pair_second") and not self._counts(kind):
            return self._fields(self.loadvar(expr.value.name), kind, expr.op.removeprefix("pair_"))[0]
        return super().lower_expr(resty, expr)

    def _makes_range(self, made: Any) -> bool:
        if not isinstance(made, ir.Expr) or made.op != "call" or made.kws or made.vararg:
            return False
        return getattr(self.typeof(made.func.name), "typing_key", None) is range

    def _range(self, resty: Any, expr: Any) -> Any:
        start, step = (self.context.get_constant(resty.dtype, value) for value in (0, 1))
        given = [self._cast_var(value, resty.dtype) for value in expr.args]
        names = {1: ["stop"], 2: ["start", "stop"], 3: ["start", "stop", "step"]}[len(given)]
        return self._packed(resty, **{"start": start, "step": step, **dict(zip(names, given))})

    def _start_of_range(self, resty: Any, expr: Any) -> Any:
        made = ir_utils.guard(ir_utils.get_definition, self.func_ir, expr.value)
        if not self._makes_range(made) or len(made.args) > 2:  # it may have a step
            return super().lower_expr(resty, expr)
        builder, kind = self.builder, self.typeof(expr.value.name)
        start, stop, step = self._fields(self.loadvar(expr.value.name), kind, "start", "stop", "step")
        length = builder.sub(stop, start)
        count = builder.select(builder.icmp_signed(">", length, length.type(0)), length, length.type(0))
        at, left = (cgutils.alloca_once_value(builder, value) for value in (start, count))
        return self._packed(resty, iter=at, stop=stop, step=step, count=left)

    def _next_of_range(self, resty: Any, expr: Any) -> Any:
        """(next number, whether there is one), as numba's without a branch of its own."""
        builder, kind = self.builder, self.typeof(expr.value.name)
        at, step, left = self._fields(self.loadvar(expr.value.name), kind, "iter", "step", "count")
        count, value = builder.load(left), builder.load(at)
        builder.store(builder.sub(count, count.type(1)), left)
        builder.store(builder.add(value, step), at)
        return self._packed(resty, first=value, second=builder.icmp_signed(">", count, count.type(0)))

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        signature = self.fndesc.calltypes[expr]
        if op not in PLAIN or not all(isinstance(kind, types.Number) for kind in signature.args):
            return super().lower_binop(resty, expr, op)
        function = self.context.typing_context.resolve_value_type(op)
        callee = function.get_call_type(self.context.typing_context, signature.args, {})
        implementation = self.context.get_function(function, callee)
        values = [
            self.context.cast(self.builder, self.loadvar(side.name), self.typeof(side.name), kind)
            for side, kind in zip((expr.lhs, expr.rhs), signature.args)
        ]
        result = implementation(self.builder, values)
        return self.context.cast(self.builder, result, callee.return_type, resty)


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(BaseNativeLowering):
    _name = "kernel_lowering"  # type: ignore[assignment]

    @property
    def lowering_class(self) -> type:
        return _Lower
