"""`Kernel`: numba's dispatcher, in fewer passes and with no work that nobody uses.

Numba makes a library of its own for every function and signature: wrappers for Python and C, a full optimisation, and
machine code. A caller takes none of that: it takes the LLVM code of its callees and optimises it with its own. Here a
function that compiled code calls is a *part*: it gets as far as that LLVM code. What Python calls is compiled whole.
Kernels are plain loops over arrays, so the passes for closures, comprehensions, array expressions and the like are left
out, and what a call means is found out once for each kind of arguments. A variable has one type in all of a function,
so there is no pass that makes several of it. Results are the same, in less time (`python -m benchmarks startup`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from types import BuiltinFunctionType, MappingProxyType
from typing import Any
from unittest.mock import patch

from llvmlite.binding import ffi
from llvmlite.binding.newpassmanagers import (
    create_new_function_pass_manager,
    create_pass_builder,
    create_pipeline_tuning_options,
)
from numba.core import base, cgutils, compiler, event, sigutils, typed_passes, types, typing, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.errors import termcolor
from numba.core.ir import Inst, Var
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.registry import CPUDispatcher
from numba.core.targetconfig import ConfigStack
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import NativeLowering
from numba.core.types import unliteral
from numba.core.types.functions import BaseFunction
from numba.core.typing.context import BaseContext
from numba.core.typing.templates import _OverloadFunctionTemplate
from numba.np import arrayobj

from rpl_agent.lowering import Lowering

#: (pass, what it does), in this order
PASSES = (
    (untyped_passes.TranslateByteCode, "analyse bytecode"),
    (untyped_passes.FixupArgs, "arguments"),
    (untyped_passes.IRProcessing, "process"),
    (untyped_passes.RewriteSemanticConstants, "constants such as a number of dimensions"),
    (untyped_passes.DeadBranchPrune, "leave out branches on arguments that are None"),
    (untyped_passes.GenericRewrites, "constant indices"),
    (typed_passes.NopythonTypeInference, "types"),
    (typed_passes.InlineOverloads, "functions of numba that are always inlined"),
    (typed_passes.IRLegalization, "legalise"),
    (Lowering, "to LLVM"),
    (typed_passes.NoPythonBackend, "result"),
)
#: the event of waiting for another process that makes the same machine code
WAITING = "rpl_agent:waiting"
#: how the functions begin that unpack Python's arguments
WRAPPER = "_ZN7cpython"


class _Library(JITCodeLibrary):
    """Numba's library, without a full optimisation of each function for itself: that comes once, at the end.

    Loops over rows are short and full of branches: vectors and copies of them gain nothing and compile for longer.
    """

    def add_ir_module(self, ir_module: Any) -> None:
        for function in ir_module.functions:
            if function.name.startswith(WRAPPER) and not function.is_declaration:  # runs once a call
                function.attributes.add("noinline")
                function.attributes.add("optnone")
        super().add_ir_module(ir_module)

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder()
        passes = create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        for level in (0, 2):  # first, parts become one function
            options = create_pipeline_tuning_options(speed_level=level)
            options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
            builder = create_pass_builder(self._codegen._tm, options)
            passes = builder.getModulePassManager()
            if level == 0:
                passes.add_loop_rotate_pass()
                passes.add_instruction_combine_pass()
                passes.add_jump_threading_pass()
            passes.add_refprune_pass()
            passes.run(self._final_module, builder)


class _PartLibrary(_Library):
    """LLVM code for others to link."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@cache
def _pipelines() -> list[PassManager]:
    passes = PassManager("kernel")
    for step, text in PASSES:
        passes.add_pass(step, text)
    passes.finalize()
    return [passes]


class _Compiler(compiler.CompilerBase):
    """Whole kernels, in few passes."""

    def define_pipelines(self) -> list[PassManager]:
        return _pipelines()

    def compile_extra(self, func: Any) -> Any:
        self.state.library = _Library(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class _NumbasCompiler(compiler.Compiler):
    """Parts of numba's own, which use all of its passes."""

    def __init__(
        self, typingctx: Any, targetctx: Any, library: Any, args: Any, return_type: Any, flags: Any, locals: Any
    ):
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)

    def define_pipelines(self) -> list[PassManager]:
        found = super().define_pipelines()
        for manager in found:
            manager.passes = [(Lowering if step is NativeLowering else step, text) for step, text in manager.passes]
            manager.finalize()
        return found

    def compile_extra(self, func: Any) -> Any:
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), func.__qualname__)
        result = super().compile_extra(func)
        key = object()  # by which callers find it; never called
        self.state.targetctx.insert_user_function(key, result.fndesc, [result.library])
        return result._replace(entry_point=key)


class _PartCompiler(_NumbasCompiler):
    """Parts of kernels."""

    define_pipelines = _Compiler.define_pipelines


class Kernel(CPUDispatcher):
    """A compiled function; its parts are the signatures that compiled code calls."""

    def __init__(
        self,
        py_func: Any,
        locals: Any = MappingProxyType({}),
        targetoptions: Mapping[str, Any] = MappingProxyType({}),
        part_compiler: type = _PartCompiler,
    ) -> None:
        options = {"nopython": True, "boundscheck": None, "no_cfunc_wrapper": True, **targetoptions}
        super().__init__(py_func, locals, options, pipeline_class=_Compiler)
        self._parts: dict[tuple, Any] = {}
        self._part_compiler = _FunctionCompiler(py_func, self.targetdescr, options, locals, part_compiler)

    def compile(self, sig: Any) -> Any:
        args = tuple(sigutils.normalize_signature(sig)[0])
        with _quick():
            if args in self.overloads or not self._keeps or self.is_kept(args):
                return super().compile(sig)
            waiting = partial(event.trigger_event, WAITING, {"dispatcher": self})
            with self._keeps.alone(args, self.targetctx, waiting):
                return super().compile(sig)

    @property
    def _keeps(self) -> Any:
        """What keeps machine code in files, if anything does."""
        kept = vars(self)["_cache"]
        return kept if hasattr(kept, "holds") else None

    def is_kept(self, args: tuple) -> bool:
        """Whether there is a file with the machine code of this signature."""
        return bool(self._keeps) and self._keeps.holds(args, self.targetctx)

    def get_call_template(self, args: Any, kws: Any) -> tuple:
        """What a caller needs to know: as numba's, of the parts."""
        pysig, args = self._part_compiler.fold_argument_types(args, kws)
        if self._part_compiler.pipeline_class is _PartCompiler:  # f(0) and f(n) are one: LLVM sees constants anyway
            args = tuple(unliteral(a) for a in args)
        if args not in self._parts:
            self._parts[args] = self._part_compiler.compile(args, None)
        name = self.py_func.__name__
        signatures = [part.signature for part in self._parts.values()]
        template = typing.make_concrete_template(f"CallTemplate({name})", key=name, signatures=signatures)
        return template, pysig, args, {}

    def get_overload(self, sig: Any) -> Any:
        args, _ = sigutils.normalize_signature(sig)
        return self._parts[tuple(args)].entry_point


_known: dict[tuple, tuple] = {}
#: options of a caller that change what a call does; others, such as inlining, change how the caller is compiled
_INHERITED = ("nrt", "error_model", "fastmath", "boundscheck", "noalias")
_find_call_type = BaseFunction.get_call_type


def _call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """`BaseFunction.get_call_type`, which tries every implementation that any type has, asked once."""
    flags = ConfigStack.top_or_none()
    options = tuple(str(getattr(flags, name)) for name in _INHERITED) if flags else None
    key = (id(self), tuple(args), tuple(kws.items()), options)
    if key not in _known:
        signature = _find_call_type(self, context, args, kws)
        if signature is None:
            return None
        _known[key] = signature, self._impl_keys[signature.args], self  # held, so that no other has its id
    signature, self._impl_keys[signature.args], _ = _known[key]
    return signature


_known_values: dict[tuple[int, int], tuple[Any, Any]] = {}
_find_value_type = BaseContext.resolve_value_type


def _value_type(self: Any, val: Any) -> Any:
    """`BaseContext.resolve_value_type`, which raises and catches an error for every operator, asked once for each."""
    if not isinstance(val, (BuiltinFunctionType, type)):
        return _find_value_type(self, val)
    key = (id(self), id(val))
    if key not in _known_values:
        _known_values[key] = _find_value_type(self, val), val  # held, so that no other has its id
    return _known_values[key][0]


_process = PostProcessor.run


def _process_at_the_end(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """`PostProcessor.run`, which finds out after every pass which variables live where: needed once, at the end."""
    code = self.func_ir
    if emit_dels or code.is_generator:
        _process(self, emit_dels, extend_lifetimes)
        return
    code.blocks = canonicalize_cfg(code.blocks)
    code.variable_lifetime = VariableLifetime(code.blocks)
    code.generator_info = None


_make_array = arrayobj.make_array
_takes_place = cache(base._has_loc)


@cache
def _array(kind: Any) -> type:
    """`arrayobj.make_array`, which looks every time whether something that is an array is made into one."""
    found = _make_array(kind)
    return (
        type(found.__name__, (found,), {"_make_refs": cgutils._StructProxy._make_refs})
        if type(kind) is types.Array
        else found
    )


@cache
def _shape(kind: type) -> type | None:
    """As what `_list_variables` goes through values of a class."""
    return next((base for base in (Var, Inst, list, tuple, dict) if issubclass(kind, base)), None)


def _list_variables(self: Any, val: Any) -> list[Any]:
    """`Inst._rec_list_vars`, which asks five times of every value what it is; most are numbers and names."""
    shape = _shape(type(val))  # type: ignore[arg-type]
    if shape is None:
        return []
    if shape is Var:
        return [val]
    if shape is Inst:
        return val.list_vars()
    return [variable for each in (val.values() if shape is dict else val) for variable in _list_variables(self, each)]


def _numbas_kernel(self: Any) -> Any:
    return lambda **options: lambda function: Kernel(function, targetoptions=options, part_compiler=_NumbasCompiler)


def _plain(self: Any, msg: str, *colours: Any) -> str:
    """Text without colours: numba colours thousands of messages of errors that it raises and catches itself."""
    return msg


@contextmanager
def _quick() -> Iterator[None]:
    """What numba does not let one choose, for the time of a compilation.

    The compiler makes millions of objects that live until it is done: looking for garbage among them is in vain.
    """
    with global_compiler_lock:
        if BaseFunction.get_call_type is _call_type:
            yield
            return
        collects = gc.isenabled()
        with (
            patch.object(BaseFunction, "get_call_type", _call_type),
            patch.object(_OverloadFunctionTemplate, "_get_jit_decorator", _numbas_kernel),
            patch.object(BaseContext, "resolve_value_type", _value_type),
            patch.object(PostProcessor, "run", _process_at_the_end),
            patch.object(Inst, "_rec_list_vars", _list_variables),
            patch.object(base, "_has_loc", _takes_place),
            patch.object(arrayobj, "make_array", _array),
            patch.object(type(termcolor()), "_markup", _plain, create=True),
            patch.object(ffi.lib._lock, "_cblist", []),  # two events for each call of LLVM, which nobody hears
        ):
            gc.disable()
            try:
                yield
            finally:
                if collects:
                    gc.enable()
