#!/usr/bin/env python3
"""Writes the rules' fixtures: <id>/{fires,quiet,edge}.json beside this file, small torch.profiler-like traces.

Each holds what the rule must make of it under "expect": how many findings, and what their first title and
severity are. Run it after a change here and commit what it writes; the tests read only the files.
"""
import json
import pathlib

HERE = pathlib.Path(__file__).parent
ATEN = "void at::native::"
K = {
    "mul": ATEN + "vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)",
    "add": ATEN + "elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
    "masked_fill": ATEN + "elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::(anonymous namespace)::masked_fill_kernel(at::TensorIterator&, c10::Scalar const&)::{lambda()#1}> >(int)",
    "where": ATEN + "elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::(anonymous namespace)::where_kernel_impl(at::TensorIterator&)::{lambda()#1}> >(int)",
    "tril": ATEN + "triu_tril_kernel<bool, int, false, 8, false>(at::cuda::detail::TensorInfo<bool, int>, long, long, int)",
    "fill": ATEN + "vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
    "isneginf": ATEN + "vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::isneginf_kernel_impl(at::TensorIteratorBase&)::{lambda()#1}>(int)",
    "all": ATEN + "reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::func_wrapper_t<bool, at::native::and_kernel_cuda(at::TensorIterator&)::{lambda()#1}> > >(int)",
    "softmax": "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, float const*, int, int, int, bool const*, int, bool)",
    "up": ATEN + "unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)",
    "down": ATEN + "vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
    "copy": ATEN + "elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int)",
    "ffma": "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
    "nvjet": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
    "flash": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >, false, true>(pytorch_flash::Flash_fwd_params)",
    "cudnn": "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
    "efficient": "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
}
BF, F32 = "c10::BFloat16", "float"
DEVICE = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0,
          "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
          "sharedMemPerBlock": 49152, "numSms": 132, "regsPerMultiprocessor": 65536,
          "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472}
V100 = dict(DEVICE, name="Tesla V100-SXM2-16GB", computeMajor=7, computeMinor=0, numSms=80,
            sharedMemPerBlockOptin=98304, sharedMemPerMultiprocessor=98304)


class Trace:
    """A host thread that runs operators and a stream that runs what they launch, as soon as it can."""

    def __init__(self, device=DEVICE, shapes=True):
        self.host, self.stream, self.correlation = 1000.0, 0.0, 0
        self.device, self.shapes, self.events = device, shapes, []
        self.pause = 1.0  # host time before a launch, µs

    def add(self, cat, name, ts, dur, tid=1, pid=100, **args):
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": round(ts, 3),
                            "dur": round(dur, 3), "args": args})
        return self.events[-1]

    def op(self, name, body, cat="cpu_op", dims=None, types=None, strides=None, values=None):
        event = self.add(cat, name, self.host, 0)
        if dims is not None and self.shapes:
            event["args"].update({"Input Dims": dims, "Input type": types or [F32] * len(dims)})
            if strides: event["args"]["Input Strides"] = strides
            event["args"]["Concrete Inputs"] = values or [""] * len(dims)
        self.host += 0.5
        if body: body()
        self.host += 0.5
        event["dur"] = round(self.host - event["ts"], 3)
        return event

    def range(self, name, body): return self.op(name, body, cat="user_annotation")

    def step(self, n, body): return self.op(f"ProfilerStep#{n}", body, cat="user_annotation")

    def launch(self, api="cudaLaunchKernel"):
        self.host += self.pause
        self.correlation += 1
        self.add("cuda_runtime", api, self.host, 1.0, correlation=self.correlation)
        self.host += 1.0

    def work(self, cat, name, dur, **args):
        ts = max(self.host + 1.0, self.stream)
        self.stream = ts + dur
        return self.add(cat, name, ts, dur, tid=7, pid=0, device=0, context=1, stream=7,
                        correlation=self.correlation, **args)

    def kernel(self, name, dur, grid=(1024, 1, 1), block=(128, 1, 1), regs=32, shared=0, occupancy=100):
        self.launch()
        self.work("kernel", K.get(name, name), dur, grid=list(grid), block=list(block),
                  **{"registers per thread": regs, "shared memory": shared, "est. achieved occupancy %": occupancy,
                     "blocks per SM": 1, "warps per SM": 4})

    def memcpy(self, kind, dur, size):
        self.launch("cudaMemcpyAsync")
        self.work("gpu_memcpy", f"Memcpy {kind}", dur, bytes=size)

    def sync(self, api="cudaStreamSynchronize"):
        start = self.host
        self.host = max(self.host + 1.0, self.stream + 1.0)
        self.add("cuda_runtime", api, start, self.host - start, correlation=0)

    def leaf(self, name, dur, dims=None, types=None):  # an operator with one kernel-less duration (CPU)
        event = self.op(name, None, dims=dims, types=types)
        event["dur"] = dur
        self.host = event["ts"] + dur
        return event

    def write(self, rule, which, count, title="", severity=""):
        folder = HERE / rule
        folder.mkdir(exist_ok=True)
        expect = {"findings": count}
        if title: expect["title"] = title
        if severity: expect["severity"] = severity
        document = {"schemaVersion": 1, "expect": expect, "record_shapes": int(self.shapes),
                    "deviceProperties": [self.device] if self.device else [],
                    "baseTimeNanoseconds": 1700000000000000000}
        head = json.dumps(document, ensure_ascii=False)[:-1]
        lines = ",\n".join(json.dumps(e, ensure_ascii=False) for e in self.events)
        (folder / f"{which}.json").write_text(f'{head}, "traceEvents": [\n{lines}\n]}}\n')


def qkv(b=8, h=16, l=1024, d=64, s=None, hk=None):
    return [[b, h, l, d], [b, hk or h, s or l, d], [b, hk or h, s or l, d]]


def dense(dims): return [[d[1] * d[2] * d[3], d[2] * d[3], d[3], 1] if len(d) == 4 else [] for d in dims]


def sdpa(t, body, dims=None, types=None, strides=None, causal="True", gqa="False", mask=None, mask_type="", dropout="0."):
    dims = dims or qkv()
    mask = mask or []
    t.op("aten::scaled_dot_product_attention", body, dims=dims + [mask, [], [], [], []],
         types=(types or [BF] * 3) + [mask_type, "Scalar", "Scalar", "", "Scalar"],
         strides=(strides or dense(dims)) + [[], [], [], [], []], values=["", "", "", "", dropout, causal, "", gqa])


def cast(t, name, dur, to, source, shape):
    t.op("aten::to", lambda: t.op("aten::_to_copy", lambda: t.op(
        "aten::copy_", lambda: t.kernel(name, dur), dims=[shape, shape, []], types=[to, source, "Scalar"])))


def safe_softmax(t, guard=155.0):
    def body():
        t.op("aten::softmax", lambda: t.kernel("softmax", 280.0))
        t.op("aten::eq", lambda: t.kernel("isneginf", guard))
        t.op("aten::all", lambda: t.kernel("all", 97.0 if guard > 1 else 0.1))
        t.op("aten::where", lambda: t.kernel("where", 409.0 if guard > 1 else 0.1))
    t.op("aten::_safe_softmax", body)


def math_call(t, casts=True, mask=True, guard=155.0, gemm="ffma", types=None):
    """The published decomposition of the math path."""
    def body():
        shape = [8, 16, 1024, 64]
        if casts:
            for _ in range(3): cast(t, "up", 26.0, F32, BF, shape)
        t.op("aten::mul", lambda: t.kernel("mul", 17.0))
        if mask:
            t.op("aten::ones", lambda: t.kernel("fill", 1.4))
            t.op("aten::tril", lambda: t.kernel("tril", 4.4))
            t.op("aten::where", lambda: t.kernel("where", 4.4))
        t.op("aten::matmul", lambda: t.op("aten::bmm", lambda: t.kernel(gemm, 527.0, regs=255, shared=33792, occupancy=13)))
        t.op("aten::add_", lambda: t.kernel("add", 396.0))
        safe_softmax(t, guard)
        t.op("aten::matmul", lambda: t.op("aten::bmm", lambda: t.kernel(gemm, 419.0, regs=121, shared=12672, occupancy=25)))
        if casts: cast(t, "down", 12.0, BF, F32, shape)
    sdpa(t, lambda: t.op("aten::_scaled_dot_product_attention_math", body), types=types)


def fused_call(t, kernel, op="flash", dims=None, strides=None, before=None, dur=95.0, host=0.0, **kw):
    def inner():
        if before: before()
        t.host += host
        t.kernel(kernel, dur, regs=255, shared=49152, occupancy=13)
    sdpa(t, lambda: t.op(f"aten::_scaled_dot_product_{op}_attention", inner), dims=dims, strides=strides, **kw)


def naive_call(t, copy=True, l=1024):
    n, shape = 128, [8, 16, l, l]
    def attn():
        t.op("aten::matmul", lambda: t.op("aten::bmm", lambda: t.kernel("nvjet", 84.0, regs=168, shared=213188, occupancy=0, block=(384, 1, 1)),
             dims=[[n, l, 64], [n, 64, l]], types=[BF, BF]), dims=[[8, 16, l, 64], [8, 16, 64, l]], types=[BF, BF])
        t.op("aten::mul", lambda: t.kernel("mul", 126.0), dims=[shape, []], types=[BF, "Scalar"])
        def fill():
            if copy:
                t.op("aten::clone", lambda: t.op("aten::copy_", lambda: t.memcpy("DtoD (Device -> Device)", 127.0, 268435456),
                     dims=[shape, shape, []], types=[BF, BF, "Scalar"]))
            t.op("aten::masked_fill_", lambda: t.kernel("masked_fill", 358.0), dims=[shape, [l, l], []], types=[BF, "bool", "Scalar"])
        t.op("aten::masked_fill" if copy else "aten::masked_fill_", fill, dims=[shape, [l, l], []], types=[BF, "bool", "Scalar"])
        t.op("aten::softmax", lambda: t.op("aten::_softmax", lambda: t.kernel("softmax", 283.0), dims=[shape, [], []], types=[BF, "Scalar", "Scalar"]),
             dims=[shape, [], []], types=[BF, "Scalar", "Scalar"])
        t.op("aten::matmul", lambda: t.op("aten::bmm", lambda: t.kernel("nvjet", 84.0, regs=168, shared=213188, occupancy=0, block=(384, 1, 1)),
             dims=[[n, l, l], [n, l, 64]], types=[BF, BF]), dims=[shape, [8, 16, l, 64]], types=[BF, BF])
    t.range("attn_fwd", attn)


def repeat(t, n, body, step=False):
    for i in range(n): (t.step(i, body) if step else body())
    return t


def fixtures():
    # attention-anatomy
    t = Trace(); repeat(t, 3, lambda: t.range("attn_fwd", lambda: math_call(t)))
    t.write("attention-anatomy", "fires", 1, "15 kernels where the formula has 5: 2 products", "note")
    t = Trace(); repeat(t, 3, lambda: t.range("attn_fwd", lambda: fused_call(t, "flash")))
    t.write("attention-anatomy", "quiet", 0)
    t = Trace()  # five kernels, as the formula has
    sdpa(t, lambda: t.op("aten::_scaled_dot_product_attention_math", lambda: [t.kernel(k, 9.0) for k in ("mul", "nvjet", "add", "softmax", "nvjet")]))
    t.write("attention-anatomy", "edge", 0)

    # hidden-copy
    t = Trace(); repeat(t, 3, lambda: naive_call(t))
    t.write("hidden-copy", "fires", 1, "268,435,456 B copied inside aten::masked_fill > aten::clone: 127 µs per call", "warning")
    t = Trace()
    shape = [8, 16, 1024, 1024]
    t.range("attn_fwd", lambda: t.op("aten::clone", lambda: t.op("aten::copy_", lambda: t.memcpy("DtoD (Device -> Device)", 127.0, 268435456), dims=[shape, shape, []], types=[BF, BF, "Scalar"])))
    t.write("hidden-copy", "quiet", 0)  # clone promises a copy
    t = Trace()
    def copy(size, dur): return lambda: t.op("aten::masked_fill", lambda: t.op("aten::clone", lambda: t.op("aten::copy_", lambda: t.memcpy("DtoD (Device -> Device)", dur, size))))
    t.range("small", copy(1048575, 4.0)); t.range("exact", copy(1048576, 4.0)); t.op("aten::mul", lambda: t.kernel("mul", 392.0))
    t.write("hidden-copy", "edge", 1, "1,048,576 B copied", "note")  # 1 MiB and 1 % count; a byte less does not

    # dtype-upcast
    t = Trace(); repeat(t, 3, lambda: t.range("attn_fwd", lambda: math_call(t)))
    t.write("dtype-upcast", "fires", 1, "3 casts, 1 back, 90.0 µs per call", "warning")
    t = Trace()
    t.range("norm", lambda: cast(t, "up", 26.0, F32, BF, [4096, 4096])); fused_call(t, "flash")
    t.write("dtype-upcast", "quiet", 0)  # a normalisation may widen
    t = Trace()
    sdpa(t, lambda: t.op("aten::_scaled_dot_product_attention_math", lambda: (cast(t, "down", 26.0, BF, F32, [8, 16, 1024, 64]), t.kernel("nvjet", 84.0))), types=[F32] * 3)
    t.write("dtype-upcast", "edge", 0)  # narrowing alone is not it

    # fp32-on-cuda-cores
    t = Trace()
    t.range("attn_fwd", lambda: math_call(t))
    t.op("aten::linear", lambda: t.op("aten::addmm", lambda: t.kernel("ampere_sgemm_128x64_tn", 400.0, regs=122)), dims=[[64, 64], [64, 64]], types=[F32, F32])
    t.write("fp32-on-cuda-cores", "fires", 2, "2 matrix products of 16-bit data ran in f32 on the FMA units: 946 µs", "warning")
    t = Trace(); t.op("aten::linear", lambda: t.op("aten::addmm", lambda: t.kernel("nvjet", 400.0, regs=168)), dims=[[64, 64], [64, 64]], types=[BF, BF])
    t.write("fp32-on-cuda-cores", "quiet", 0)
    t = Trace(V100); t.op("aten::linear", lambda: t.op("aten::addmm", lambda: t.kernel("volta_sgemm_128x64_tn", 400.0, regs=122)), dims=[[64, 64], [64, 64]])
    t.write("fp32-on-cuda-cores", "edge", 0)  # no TF32 before Ampere

    # mask-rebuilt
    t = Trace(); repeat(t, 3, lambda: t.range("attn_fwd", lambda: math_call(t)))
    t.write("mask-rebuilt", "fires", 1, "the mask is built anew in each of 3 equal calls: 3 kernels, 10.2 µs per call", "note")
    t = Trace(); repeat(t, 3, lambda: math_call(t, mask=False))
    t.write("mask-rebuilt", "quiet", 0)
    t = Trace(); math_call(t)
    t.write("mask-rebuilt", "edge", 0)  # one call has to build it once

    # safe-softmax-cost
    t = Trace(); repeat(t, 3, lambda: t.range("attn_fwd", lambda: math_call(t)))
    t.write("safe-softmax-cost", "fires", 1, "guarding the softmax against empty rows: 3 kernels, 661 µs per call beside 280 µs of softmax", "warning")
    t = Trace(); t.op("aten::softmax", lambda: t.kernel("softmax", 280.0)); t.op("aten::where", lambda: t.kernel("where", 409.0))
    t.write("safe-softmax-cost", "quiet", 0)
    t = Trace(); math_call(t, guard=0.1)
    t.write("safe-softmax-cost", "edge", 0)  # below one per cent

    # unfused-attention
    t = Trace(); repeat(t, 3, lambda: naive_call(t, copy=False))
    t.write("unfused-attention", "fires", 1, "attention written out in 5 kernels: 935 µs per call", "warning")
    t = Trace(); repeat(t, 3, lambda: t.range("attn_fwd", lambda: math_call(t)))
    t.write("unfused-attention", "quiet", 0)  # SDPA's own math path
    t = Trace(); repeat(t, 3, lambda: naive_call(t, copy=False, l=32))
    t.write("unfused-attention", "edge", 0)  # scores of 256 KiB stay in cache

    # transposes-before-fused-kernel
    def contiguous(t, dur): return lambda: [t.op("aten::contiguous", lambda: t.op("aten::clone", lambda: t.op(
        "aten::copy_", lambda: t.kernel("copy", dur), dims=[[8, 16, 1024, 64]] * 2 + [[]], types=[BF, BF, "Scalar"]))) for _ in range(3)]
    t = Trace(); repeat(t, 3, lambda: t.range("attn_fwd", lambda: fused_call(t, "flash", before=contiguous(t, 20.0))))
    t.write("transposes-before-fused-kernel", "fires", 1, "3 copies before the fused kernel of aten::scaled_dot_product_attention: 60.0 µs per call", "warning")
    t = Trace(); repeat(t, 3, lambda: t.range("attn_fwd", lambda: fused_call(t, "flash")))
    t.write("transposes-before-fused-kernel", "quiet", 0)
    t = Trace(); repeat(t, 3, lambda: fused_call(t, "flash", before=contiguous(t, 0.3)))
    t.write("transposes-before-fused-kernel", "edge", 0)  # 0.94 %

    # backend-fallback
    t = Trace(); d = qkv(d=260)
    sdpa(t, lambda: t.op("aten::_scaled_dot_product_attention_math", lambda: [t.kernel(k, 90.0) for k in ("nvjet", "softmax", "nvjet")]), dims=d)
    t.write("backend-fallback", "fires", 1, "1 call ran the math path, fallen back", "warning")
    t = Trace(); repeat(t, 3, lambda: fused_call(t, "flash"))
    t.write("backend-fallback", "quiet", 0)
    t = Trace(); fused_call(t, "efficient", op="efficient", causal="False", mask=[8, 1, 1024, 1024], mask_type=F32)
    t.write("backend-fallback", "edge", 1, "1 call ran the efficient backend, forced: another backend takes these inputs", "note")

    # fused-opaque
    t = Trace(); t.kernel("triton_per_fused__softmax_masked_fill_mul_0", 154.0)
    t.write("fused-opaque", "fires", 1, "fuses _softmax, masked_fill, mul", "info")
    t = Trace(); t.kernel("softmax", 154.0)
    t.write("fused-opaque", "quiet", 0)
    t = Trace(); t.kernel("triton_poi_fused_add_0", 1.0); t.kernel("mul", 100.0)
    t.write("fused-opaque", "edge", 0)  # 0.99 %

    # low-occupancy-by-design
    t = Trace(); fused_call(t, "flash")
    t.write("low-occupancy-by-design", "fires", 1, "flash forward: 12.5 % occupancy by design: 128 threads × 255 registers", "info")
    t = Trace(); t.kernel("softmax", 100.0, regs=48)
    t.write("low-occupancy-by-design", "quiet", 0)
    t = Trace(); t.kernel("nvjet", 100.0, block=(384, 1, 1), regs=64)
    t.write("low-occupancy-by-design", "edge", 0)  # warps for 5 blocks: not low

    # low-occupancy-problem
    t = Trace(); t.op("aten::sum", lambda: t.kernel("all", 200.0, grid=(8, 1, 1), block=(512, 1, 1)))
    t.write("low-occupancy-problem", "fires", 1, "a grid of 8 blocks", "warning")
    t = Trace(); t.op("aten::sum", lambda: t.kernel("all", 200.0, grid=(4096, 1, 1), block=(512, 1, 1)))
    fused_call(t, "flash")
    t.write("low-occupancy-problem", "quiet", 0)
    t = Trace(); t.op("aten::sum", lambda: t.kernel("all", 9.9, grid=(8, 1, 1), block=(512, 1, 1)))
    t.write("low-occupancy-problem", "edge", 0)  # shorter than 10 µs

    # false-zero-occupancy
    t = Trace(); repeat(t, 3, lambda: t.kernel("cudnn", 57.0, grid=(132, 1, 1), block=(384, 1, 1), regs=168, shared=134144, occupancy=0))
    t.write("false-zero-occupancy", "fires", 1, "3 kernels reported 0 %, really 18.75 % (1 block, 12 of 64 warps, 18.75 %, registers + shared memory): 134,144 B of shared memory > 49,152 B", "note")
    t = Trace(); t.kernel("fill", 1.0, grid=(1, 1, 1), regs=16, occupancy=0)
    t.write("false-zero-occupancy", "quiet", 0)  # an honest zero: one block on 132 multiprocessors
    t = Trace(); t.kernel("flash", 95.0, regs=255, shared=49152, occupancy=13)
    t.write("false-zero-occupancy", "edge", 0)  # exactly 48 KiB counts

    # launch-bound
    def launches(t, n, dur, pause):
        t.pause = pause
        for _ in range(n): t.kernel("mul", dur)
    t = Trace(shapes=False); launches(t, 120, 2.0, 40.0)
    t.write("launch-bound", "fires", 1, "under the profiler the device waits", "warning")
    t = Trace(shapes=False); launches(t, 120, 60.0, 4.0)
    t.write("launch-bound", "quiet", 0)
    t = Trace(shapes=False); launches(t, 49, 2.0, 40.0)
    t.write("launch-bound", "edge", 0)  # 49 launches make no pattern

    # tiny-kernels
    t = Trace(); launches(t, 120, 2.0, 4.0)
    t.write("tiny-kernels", "fires", 1, "120 of 120 launched kernels take less than 5 µs", "note")
    t = Trace(); launches(t, 120, 20.0, 4.0)
    t.write("tiny-kernels", "quiet", 0)
    t = Trace(); launches(t, 100, 4.9, 4.0); launches(t, 101, 5.0, 4.0)
    t.write("tiny-kernels", "edge", 0)  # 100 short ones, but not half of all

    # host-bound-gap
    def gap(t, width):
        t.kernel("mul", 50.0)
        event = t.add("cpu_op", "DataLoader.next", t.host, width)
        t.host = event["ts"] + width
        t.kernel("mul", 50.0)
    t = Trace(shapes=False); gap(t, 5000.0)
    t.write("host-bound-gap", "fires", 1, "the host was in DataLoader.next", "warning")
    t = Trace(shapes=False); gap(t, 20.0)
    t.write("host-bound-gap", "quiet", 0)
    t = Trace(shapes=False); gap(t, 450.0)
    t.write("host-bound-gap", "edge", 0)  # below 500 µs

    # sync-in-step
    def item(t, then):
        t.op("aten::relu", lambda: t.kernel("mul", 100.0))
        t.op("aten::item", lambda: (t.memcpy("DtoH (Device -> Pageable)", 1.0, 4), t.sync()))
        t.host += 80.0
        if then: t.op("aten::relu", lambda: t.kernel("mul", 100.0))
    t = Trace(); repeat(t, 3, lambda: item(t, True), step=True)
    t.write("sync-in-step", "fires", 1, "3 synchronising calls let the device run dry", "warning")
    t = Trace(); repeat(t, 3, lambda: [t.op("aten::relu", lambda: t.kernel("mul", 100.0)) for _ in range(3)], step=True)
    t.write("sync-in-step", "quiet", 0)
    t = Trace(); repeat(t, 3, lambda: item(t, False), step=True)
    t.write("sync-in-step", "edge", 0)  # the last thing in each step: that is how a step is measured

    # library-host-time
    t = Trace(); n = [0]
    def cudnn():
        n[0] += 1
        fused_call(t, "cudnn", op="cudnn", dur=57.0, host=59000.0 if n[0] == 1 else 200.0)
    repeat(t, 4, cudnn)
    t.write("library-host-time", "fires", 2, "the first cudnn call took 59.0 ms on the host", "note")
    t = Trace(); repeat(t, 4, lambda: fused_call(t, "flash", dur=950.0))
    t.write("library-host-time", "quiet", 0)
    t = Trace(); repeat(t, 4, lambda: fused_call(t, "cudnn", op="cudnn", dur=300.0, host=200.0))
    t.write("library-host-time", "edge", 0)  # the device needs longer than the host

    # pageable-copy
    t = Trace(); t.op("aten::copy_", lambda: t.memcpy("HtoD (Pageable -> Device)", 100.0, 1048576)); t.kernel("mul", 100.0)
    t.write("pageable-copy", "fires", 1, "1 copy from pageable memory to the device", "warning")
    t = Trace(); t.op("aten::copy_", lambda: t.memcpy("HtoD (Pinned -> Device)", 100.0, 1048576)); t.kernel("mul", 100.0)
    t.write("pageable-copy", "quiet", 0)
    t = Trace(); t.op("aten::copy_", lambda: t.memcpy("DtoH (Device -> Pageable)", 5.0, 65535)); t.kernel("mul", 100.0)
    t.write("pageable-copy", "edge", 0)  # below 64 KiB

    # first-step-warm-up
    def steps(t, times):
        for i, dur in enumerate(times): t.step(i, lambda: t.op("aten::relu", lambda: t.kernel("mul", dur)))
    t = Trace(); steps(t, [300.0, 100.0, 101.0, 99.0])
    t.write("first-step-warm-up", "fires", 1, "the first step's device time is 300 µs, the median of the 3 later ones 100 µs: 3.00 ×", "note")
    t = Trace(); steps(t, [101.0, 100.0, 99.0, 100.0])
    t.write("first-step-warm-up", "quiet", 0)
    t = Trace(); steps(t, [119.0, 100.0, 100.0, 100.0])
    t.write("first-step-warm-up", "edge", 0)  # 1.19 times

    # kernels-leak-across-steps
    def leak(t, order):
        t.correlation += 1
        for name in order:
            if name == "earlier":
                t.add("kernel", K["softmax"], 100.0, 284.0, tid=7, pid=0, device=0, context=1, stream=7, correlation=999)
            else:
                t.op("aten::mul", lambda: t.kernel("mul", 126.0))
    t = Trace(); leak(t, ["earlier", "mul", "mul"])
    t.write("kernels-leak-across-steps", "fires", 1, "1 of 3 kernels (1 events of device work, 284 µs)", "note")
    t = Trace(); leak(t, ["mul", "mul"])
    t.write("kernels-leak-across-steps", "quiet", 0)
    t = Trace(); leak(t, ["mul", "mul"])
    t.add("kernel", K["softmax"], t.stream + 10, 284.0, tid=7, pid=0, device=0, context=1, stream=7, correlation=999)
    t.write("kernels-leak-across-steps", "edge", 0)  # unlinked, but after the stream's first linked work

    # annotation-percent
    def annotated(t, spread):
        t.range("attn_fwd", lambda: [t.op("aten::mul", lambda: (t.kernel("mul", 100.0), setattr(t, "host", t.host + spread))) for _ in range(2)])
        first = next(e for e in t.events if e["cat"] == "kernel")
        t.add("gpu_user_annotation", "attn_fwd", first["ts"], t.stream - first["ts"], tid=7, pid=0)
    t = Trace(); annotated(t, 300.0)
    t.write("annotation-percent", "fires", 1, "the row attn_fwd reads", "info")
    t = Trace(); annotated(t, 0.0)
    t.write("annotation-percent", "quiet", 0)
    t = Trace(); annotated(t, 97.9)
    t.write("annotation-percent", "edge", 0)  # 0.5 % apart


fixtures()
