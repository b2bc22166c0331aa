"""Launches one image a few times on one shape, for ncu or compute-sanitizer: once.py MANIFEST NAME B H S [CALLS]"""

import json
import os
import sys

import torch

from launcher import Image

manifest, name, b, h, s = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
torch.zeros(1, device="cuda")
info = next(i for i in json.load(open(manifest)) if i["name"] == name)
image = Image(info, os.path.dirname(os.path.abspath(manifest)))
dtype = torch.bfloat16 if image.dtype == "bf16" else torch.float16
q, k, v = (torch.randn(b, h, s, d, device="cuda").to(dtype) for d in (image.e, image.e, image.ev))
out = torch.empty_like(v)
launch = image.prepare(q, k, v, out, None, image.e**-0.5)
for _ in range(int(sys.argv[6]) if len(sys.argv) > 6 else 2): launch()
torch.cuda.synchronize()
print(name, out.float().abs().mean().item())
