"""A few cases of one featured image, for compute-sanitizer: featured_once.py MANIFEST NAME"""

import json
import os
import re
import sys

import torch
import featured_check
from featured_launcher import Featured
torch.zeros(1, device="cuda")
info = next(i for i in json.load(open(sys.argv[1])) if i["name"] == sys.argv[2])
image = Featured({**info, "use_e": info["e"], "use_ev": info["ev"]}, os.path.dirname(sys.argv[1]))
for c in featured_check.cases(info["transform"]):
    if re.match(r"window 40,-1 causal $|lengths poisoned torch.int32 causal True|packed True True 60|sinks torch.float32|values mixed causal True left 70|everything|dropout packed|plain causal", c[0]):
        print(c[0], featured_check.run_case(image, *c), flush=True)
