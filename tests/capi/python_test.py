"""The ctypes loader without any framework: tensors of the array interface, built from ctypes memory."""
import ctypes
import json
import math
import os
import tempfile
import unittest

import attnscope


class Array:
    """Just enough of NumPy's interface: a dense float32 array."""
    dtype = "float32"
    itemsize = 4

    def __init__(self, *shape, fill=None):
        self.shape = shape
        n = math.prod(shape)
        self.memory = (ctypes.c_float * n)(*(fill(i) if fill else float("nan") for i in range(n)))
        strides = []
        for size in reversed(shape):
            strides.insert(0, strides[0] * last if strides else 4)
            last = size
        self.strides = tuple(strides)
        self.__array_interface__ = {"data": (ctypes.addressof(self.memory), False)}


def inputs():
    wave = lambda i: math.sin(0.37 * (i + 1))
    return (Array(1, 2, 5, 8, fill=wave), Array(1, 2, 7, 8, fill=wave), Array(1, 2, 7, 8, fill=wave), Array(1, 2, 5, 8))


class Loader(unittest.TestCase):
    def test_first_causal_row_is_the_first_value(self):
        q, k, v, out = inputs()
        attnscope.sdpa(q, k, v, out=out, causal="top_left")
        for e in range(8):
            self.assertAlmostEqual(out.memory[e], v.memory[e], places=6)
        self.assertFalse(any(math.isnan(x) for x in out.memory))

    def test_plan(self):
        q, k, v, out = inputs()
        plan = attnscope.Plan(q, k, v, backends="math")
        self.assertEqual(plan.backend, "math")
        self.assertIn("kernel", plan.describe())
        plan.bind(out)()
        again = Array(1, 2, 5, 8)
        plan.run(q, k, v, again)
        self.assertEqual(list(out.memory), list(again.memory))

    def test_a_bound_call_keeps_its_tensors_whatever_the_plan_runs_on(self):
        q, k, v, out = inputs()
        plan = attnscope.Plan(q, k, v, backends="math")
        bound = plan.bind(out)
        bound()
        first = list(out.memory)
        other = Array(1, 2, 7, 8, fill=lambda i: float(i))
        plan.run(q, k, other, Array(1, 2, 5, 8))
        for call in (bound, plan.bind(out)):
            out.memory[:] = [float("nan")] * len(out.memory)
            call()
            self.assertEqual(list(out.memory), first)

    def test_strides_between_elements_are_an_error(self):
        q, k, v, out = inputs()
        k.strides = tuple(s // 4 * 5 for s in k.strides)  # a float32 field of records of five bytes
        with self.assertRaises(TypeError):
            attnscope.sdpa(q, k, v, out=out)

    def test_errors_carry_the_remedy(self):
        q, k, v, out = inputs()
        with self.assertRaises(attnscope.Error) as caught:
            attnscope.sdpa(q, k, v, out=out, backends="flsh")
        self.assertIn("did you mean", caught.exception.remedy)
        with self.assertRaises(TypeError):
            attnscope.sdpa(q, k, v, out=out, no_such_option=1)
        with self.assertRaises(ValueError):
            attnscope.sdpa(q, k, v, out=out, causal="sideways")

    def test_choose_and_backends(self):
        q, k, v, _ = inputs()
        self.assertTrue(attnscope.choose(q, k, v)["winner"])
        self.assertIn("math", [b["name"] for b in attnscope.backends()])

    def test_session_writes_a_trace(self):
        q, k, v, out = inputs()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.json")
            with attnscope.Session(path=path) as session:
                with attnscope.range("attn_fwd"):
                    attnscope.sdpa(q, k, v, out=out, backends="naive")
            self.assertGreater(session.summary["events"], 0)
            with open(path) as file:
                names = {e["name"] for e in json.load(file)["traceEvents"]}
            self.assertTrue({"attn_fwd", "attnscope::naive"} <= names)

    def test_an_output_that_may_not_be_written_is_an_error(self):
        q, k, v, out = inputs()
        address, _ = out.__array_interface__["data"]
        out.__array_interface__ = {"data": (address, True)}
        with self.assertRaises(TypeError):
            attnscope.sdpa(q, k, v, out=out)
        with self.assertRaises(TypeError):
            attnscope.Plan(q, k, v).run(q, k, v, out)
        self.assertTrue(all(math.isnan(x) for x in out.memory))


unittest.main()
