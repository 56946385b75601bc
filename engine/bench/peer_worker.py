"""One compared system in a process of its own: reads one JSON job a line, answers with one JSON line.

Started as ``python -m engine.bench.peer_worker SYSTEM MODEL``. The first answer is ``{"ready": description}``; a job is
``{"requests": [{"prompt": [ids], "output_tokens": n}, …]}`` and its answer ``{"seconds": s, "outputs": [[ids], …]}``. Whatever
libraries print goes to standard error, so that nothing but answers stands on standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time

from engine.bench import peer_systems
from engine.bench.peer_llamacpp import LlamaCpp

SYSTEMS = {"batchscope": peer_systems.Batchscope, "generate_batch": peer_systems.GenerateBatch, "static": peer_systems.Static,
           "vllm": peer_systems.Vllm, "llamacpp": LlamaCpp}


def serve(name: str, model: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    system = SYSTEMS[name](model)
    system.run([{"prompt": list(range(100, 120)), "output_tokens": 4}] * 2)         # first-use costs are nobody's speed
    print(json.dumps({"ready": system.describe()}), file=answers)
    for line in sys.stdin:
        requests = json.loads(line)["requests"]
        begin = time.perf_counter()
        outputs = system.run(requests)
        print(json.dumps({"seconds": time.perf_counter() - begin, "outputs": outputs}), file=answers)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
