"""The quick import of Gradio gives the same page and leaves the type stubs alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DESCRIBE = """
import json
from viz.page import build_page
import gradio, gradio.component_meta as meta
config = build_page().get_config_file()
print(json.dumps({"components": [[item["type"], sorted(item["props"])] for item in config["components"]],
                  "events": len(config["dependencies"]), "writes": meta.create_or_modify_pyi.__name__}))
"""


def described(first: str) -> dict:
    done = subprocess.run([sys.executable, "-c", first + DESCRIBE], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_page_is_the_same_and_no_stub_is_written():
    quick = described("from viz.gradio_import import import_gradio; import_gradio()")
    plain = described("import gradio")
    assert plain["writes"] == "create_or_modify_pyi"
    assert quick["writes"] != plain["writes"]
    assert quick["components"] == plain["components"]
    assert quick["events"] == plain["events"]
