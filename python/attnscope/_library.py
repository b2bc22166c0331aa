"""Finds and types libattnscope.so: the structs and functions of include/attnscope/attnscope.h."""
import ctypes as C
import os
from pathlib import Path

ABI_VERSION = 1


class Device(C.Structure):
    _fields_ = [("device_type", C.c_int32), ("device_id", C.c_int32)]


class DataType(C.Structure):
    _fields_ = [("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16)]


class Tensor(C.Structure):
    """DLTensor."""
    _fields_ = [("data", C.c_void_p), ("device", Device), ("ndim", C.c_int32), ("dtype", DataType),
                ("shape", C.POINTER(C.c_int64)), ("strides", C.POINTER(C.c_int64)), ("byte_offset", C.c_uint64)]


TensorP = C.POINTER(Tensor)


class Request(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("causal", C.c_int32),
        ("q", TensorP), ("k", TensorP), ("v", TensorP), ("mask", TensorP),
        ("window_left", C.c_int64), ("window_right", C.c_int64),
        ("has_scale", C.c_int32), ("want_lse", C.c_int32),
        ("scale", C.c_double), ("softcap", C.c_double), ("dropout_p", C.c_double),
        ("dropout_seed", C.c_uint64), ("dropout_offset", C.c_uint64), ("dropout_seed_on_device", C.c_void_p),
        ("kv_lengths", TensorP), ("cu_q", TensorP), ("cu_k", TensorP), ("block_table", TensorP),
        ("page_size", C.c_int64), ("append_k", TensorP), ("append_v", TensorP), ("sinks", TensorP),
        ("want_gradients", C.c_int32), ("deterministic", C.c_int32),
        ("limit_sm_count", C.c_int32), ("limit_splits", C.c_int32), ("limit_threads", C.c_int32), ("reserved", C.c_int32),
        ("limit_memory_bytes", C.c_int64), ("alibi_slopes", TensorP)]


def candidates():
    """Where the library may be, best first."""
    forced = os.environ.get("ATTNSCOPE_LIBRARY")
    if forced:
        return [forced]
    here = Path(__file__).resolve().parent
    near = [here / "libattnscope.so", here / "lib/libattnscope.so", here.parents[1] / "lib/libattnscope.so",
            *sorted(here.parents[1].glob("build/*/lib/libattnscope.so"))]
    return [str(p) for p in near if p.exists()] + ["libattnscope.so"]


def load():
    problems = []
    for path in candidates():
        try:
            library = C.CDLL(path)
        except OSError as error:
            problems.append(f"{path}: {error}")
            continue
        declare(library)
        found = library.attnscope_abi_version()
        if found != ABI_VERSION:
            problems.append(f"{path}: ABI version {found}, this package speaks {ABI_VERSION}")
            continue
        return library, path
    raise OSError("libattnscope.so could not be loaded; set ATTNSCOPE_LIBRARY to it\n  " + "\n  ".join(problems))


def declare(library):
    request, text = C.POINTER(Request), C.POINTER(C.c_void_p)
    signatures = {
        "attnscope_request_init": (None, [request]),
        "attnscope_version": (C.c_char_p, []),
        "attnscope_abi_version": (C.c_uint32, []),
        "attnscope_error_message": (C.c_char_p, []),
        "attnscope_error_remedy": (C.c_char_p, []),
        "attnscope_free": (None, [C.c_void_p]),
        "attnscope_sdpa": (C.c_int, [request, C.c_char_p, TensorP, TensorP, C.c_void_p]),
        "attnscope_plan_create": (C.c_int, [request, C.c_char_p, C.POINTER(C.c_void_p)]),
        "attnscope_plan_destroy": (None, [C.c_void_p]),
        "attnscope_plan_backend": (C.c_char_p, [C.c_void_p]),
        "attnscope_plan_describe": (C.c_char_p, [C.c_void_p]),
        "attnscope_plan_workspace_bytes": (C.c_size_t, [C.c_void_p]),
        "attnscope_plan_run": (C.c_int, [C.c_void_p, request, TensorP, TensorP, C.c_void_p, C.c_void_p, C.c_size_t]),
        "attnscope_choose": (C.c_int, [request, C.c_char_p, text]),
        "attnscope_backends": (C.c_int, [text]),
        "attnscope_session_start": (C.c_int, [C.c_int32, C.c_int32, C.POINTER(C.c_void_p)]),
        "attnscope_session_step": (C.c_int, [C.c_void_p]),
        "attnscope_session_finish": (C.c_int, [C.c_void_p, C.c_char_p, text]),
        "attnscope_range_push": (None, [C.c_char_p]),
        "attnscope_range_pop": (None, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
