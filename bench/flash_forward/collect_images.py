"""Copies the images a build embedded and writes their manifest: collect_images.py BUILD_FOLDER OUT_FOLDER"""

import json
import os
import re
import shutil
import sys

source, out = os.path.join(sys.argv[1], "src/backends/cubins"), sys.argv[2]
os.makedirs(out, exist_ok=True)
infos = []
for file in sorted(os.listdir(source)):
    match = re.fullmatch(r"flash_sm90_e(\d+)_v(\d+)_k(\d+)_w(\d+)_c(\d)_(bf16|f16)(_any_output)?\.cubin", file)
    if not match: continue
    e, ev, keys, warpgroups, causal = map(int, match.groups()[:5])
    shutil.copy(os.path.join(source, file), out)
    infos.append({"name": file[:-6].removeprefix("flash_sm90_"), "file": file, "e": e, "ev": ev, "columns": keys, "consumers": warpgroups,
                  "causal": bool(causal), "dtype": match.group(6)})
json.dump(infos, open(f"{out}/manifest.json", "w"), indent=1)
