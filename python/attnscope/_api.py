"""sdpa, Plan, Session: thin over the C ABI; tensors are described, never copied."""
import contextlib
import ctypes as C
import functools
import json

from . import _library
from ._library import DataType, Device, Request, Tensor

_lib, library_path = _library.load()

_CAUSAL = {None: 0, False: 0, "none": 0, True: 1, "top_left": 1, "lower_right": 2}
_TYPES = {"float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16), "bool": (6, 8),
          "int32": (0, 32), "int64": (0, 64)}
_FIELDS = ("window_left", "window_right", "softcap", "dropout_p", "dropout_seed", "dropout_offset", "page_size",
           "want_gradients", "deterministic", "limit_sm_count", "limit_splits", "limit_threads", "limit_memory_bytes")
_TENSORS = ("mask", "kv_lengths", "cu_q", "cu_k", "block_table", "append_k", "append_v", "sinks", "alibi_slopes")


class Error(RuntimeError):
    """What went wrong, and in `remedy` what to do about it; `code` as in attnscope.h."""

    def __init__(self, code):
        message = _lib.attnscope_error_message().decode()
        self.code, self.remedy = code, _lib.attnscope_error_remedy().decode()
        super().__init__(f"{message}; {self.remedy}" if self.remedy else message)


def _check(code):
    if code:
        raise Error(code)


def _take_text(pointer):
    text = C.string_at(pointer.value).decode()
    _lib.attnscope_free(pointer)
    return json.loads(text)


def _describe(tensor, written=False):
    """A Tensor struct over a framework's tensor (torch: data_ptr, stride(); NumPy: the array interface)."""
    shape = tuple(tensor.shape)
    if hasattr(tensor, "data_ptr"):
        data, strides = tensor.data_ptr(), tuple(tensor.stride())
        kind = tensor.device.type
        index = tensor.device.index or 0
    else:
        interface = tensor.__array_interface__
        data, read_only = interface["data"]
        if written and read_only:
            raise TypeError("an output is read-only; give an array that may be written")
        if any(s % tensor.itemsize for n, s in zip(shape, tensor.strides) if n > 1):
            raise TypeError(f"strides of {tuple(tensor.strides)} bytes are no whole elements of {tensor.dtype}")
        strides = tuple(s // tensor.itemsize for s in tensor.strides)
        kind, index = "cpu", 0
    if kind not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on {kind} cannot be taken; move it to the CPU or a CUDA device")
    name = str(tensor.dtype).replace("torch.", "")
    if name not in _TYPES:
        raise TypeError(f"a tensor of {name} cannot be taken; known: {', '.join(_TYPES)}")
    code, bits = _TYPES[name]
    n = len(shape)
    return Tensor(data or None, Device(2 if kind == "cuda" else 1, index), n, DataType(code, bits, 1),
                  (C.c_int64 * n)(*shape), (C.c_int64 * n)(*strides), 0)


def _stream_reader(tensor):
    """A function that gives torch's current stream for the tensor's device, cheap to call again and again."""
    if getattr(getattr(tensor, "device", None), "type", "cpu") != "cuda":
        return lambda: None
    import torch
    index = tensor.device.index or 0
    if hasattr(torch._C, "_cuda_getCurrentRawStream"):
        return functools.partial(torch._C._cuda_getCurrentRawStream, index)
    return lambda: torch.cuda.current_stream(index).cuda_stream


class _Call:
    """A request with everything it points to."""

    def __init__(self, q, k, v, causal=None, scale=None, lse=False, **options):
        self.request = Request()
        _lib.attnscope_request_init(C.byref(self.request))
        self.keep = {}
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            self._point(name, tensor)
        if causal not in _CAUSAL:
            raise ValueError(f"causal is {causal!r}; None, 'top_left' or 'lower_right'")
        self.request.causal = _CAUSAL[causal]
        if scale is not None:
            self.request.has_scale, self.request.scale = 1, scale
        self.request.want_lse = 1 if lse else 0
        for name, value in options.items():
            if value is None:
                continue
            if name in _TENSORS:
                self._point(name, value)
            elif name in _FIELDS:
                setattr(self.request, name, value)
            else:
                raise TypeError(f"sdpa has no option {name!r}; known: {', '.join(_FIELDS + _TENSORS)}")

    def _point(self, name, tensor):
        self.keep[name] = (tensor, _describe(tensor))
        setattr(self.request, name, C.pointer(self.keep[name][1]))

    def on(self, **tensors):
        """The same call on other tensors; this one stays as it is, also for other threads."""
        other = object.__new__(_Call)
        other.request, other.keep = Request.from_buffer_copy(self.request), dict(self.keep)
        for name, tensor in tensors.items():
            other._point(name, tensor)
        return other


def _names(backends):
    if backends is None:
        return None
    return (backends if isinstance(backends, str) else ",".join(backends)).encode()


def _new_outputs(q, v, lse):
    import torch
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    return out, torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) if lse else None


def sdpa(q, k, v, *, backends=None, out=None, lse=False, causal=None, scale=None, **options):
    """Attention of q [B,Hq,L,E], k [B,Hk,S,E], v [B,Hv,S,Ev]; returns out, or (out, lse) when lse is asked for.

    Runs on the current stream of torch. backends: names in order of preference; none = automatic.
    """
    call = _Call(q, k, v, causal=causal, scale=scale, lse=lse, **options)
    made, logsum = _new_outputs(q, v, lse) if out is None or lse else (out, None)
    out = made if out is None else out
    o = _describe(out, written=True)
    s = C.byref(_describe(logsum, written=True)) if lse else None
    _check(_lib.attnscope_sdpa(C.byref(call.request), _names(backends), C.byref(o), s, _stream_reader(q)()))
    return (out, logsum) if lse else out


def choose(q, k, v, *, backends=None, **options):
    """What would run and why the others refuse: {"winner", "why", "refusals"}."""
    call = _Call(q, k, v, **options)
    text = C.c_void_p()
    _check(_lib.attnscope_choose(C.byref(call.request), _names(backends), C.byref(text)))
    return _take_text(text)


def backends():
    text = C.c_void_p()
    _check(_lib.attnscope_backends(C.byref(text)))
    return _take_text(text)


def version():
    return _lib.attnscope_version().decode()


class Plan:
    """A prepared call. run() takes tensors of the same shapes and strides and costs its launches only."""

    def __init__(self, q, k, v, *, backends=None, **options):
        self._handle = C.c_void_p()
        self._call = _Call(q, k, v, **options)
        _check(_lib.attnscope_plan_create(C.byref(self._call.request), _names(backends), C.byref(self._handle)))

    @property
    def backend(self):
        return _lib.attnscope_plan_backend(self._handle).decode()

    @property
    def workspace_bytes(self):
        return _lib.attnscope_plan_workspace_bytes(self._handle)

    def describe(self):
        return _lib.attnscope_plan_describe(self._handle).decode()

    def bind(self, out, lse=None, workspace=None):
        """A function of no arguments that runs the plan on the tensors it was made with: for timing and replay."""
        return self._bind(self._call, out, lse, workspace)

    def _bind(self, bound, out, lse, workspace):
        o = _describe(out, written=True)
        s = _describe(lse, written=True) if lse is not None else None
        run, handle, request = _lib.attnscope_plan_run, self._handle, C.byref(bound.request)
        o_pointer, s_pointer = C.byref(o), C.byref(s) if s is not None else None
        memory = workspace.data_ptr() if workspace is not None else None
        size = workspace.numel() * workspace.element_size() if workspace is not None else 0
        stream = _stream_reader(bound.keep["q"][0])

        def call():
            code = run(handle, request, o_pointer, s_pointer, stream(), memory, size)
            if code:
                raise Error(code)

        call.keep = (self, bound, out, lse, workspace, o, s)
        return call

    def run(self, q, k, v, out, lse=None):
        self._bind(self._call.on(q=q, k=k, v=v), out, lse, None)()

    def __del__(self):
        if getattr(self, "_handle", None):
            _lib.attnscope_plan_destroy(self._handle)


class Session:
    """Records operators, ranges and (cuda) GPU activity; `summary` afterwards, a Kineto trace when path is given."""

    def __init__(self, cuda=False, record_shapes=False, path=None):
        self._arguments, self._path, self.summary = (int(cuda), int(record_shapes)), path, None
        self._handle = C.c_void_p()

    def __enter__(self):
        _check(_lib.attnscope_session_start(*self._arguments, C.byref(self._handle)))
        return self

    def step(self):
        _check(_lib.attnscope_session_step(self._handle))

    def __exit__(self, *_):
        text, handle = C.c_void_p(), self._handle
        self._handle = C.c_void_p()
        path = str(self._path).encode() if self._path else None
        _check(_lib.attnscope_session_finish(handle, path, C.byref(text)))
        self.summary = _take_text(text)


@contextlib.contextmanager
def range(name):
    """A named range of this thread in the current session."""
    _lib.attnscope_range_push(str(name).encode())
    try:
        yield
    finally:
        _lib.attnscope_range_pop()
