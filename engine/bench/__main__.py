"""``python -m engine.bench COMMAND …``: finds the commands without importing them, so that help needs neither torch nor time."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

from engine.errors import BatchscopeError


def commands() -> dict[str, str]:
    """Name and first line of the docstring of every module beside this one that defines ``main``."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def run_command(arguments: list[str]) -> int:
    """Run the command named first; the exit status. A refusal becomes one sentence on standard error and status 2."""
    known = commands()
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m engine.bench COMMAND [options]      (COMMAND --help tells its options)\n")
        for name, line in known.items():
            print(f"  {name:12} {line}")
        return 0 if arguments else 2
    name = arguments[0].replace("-", "_")
    if name not in known:
        print(f"There is no command {arguments[0][:40]!r}; there are {', '.join(known)}.", file=sys.stderr)
        return 2
    try:
        return import_module(f"engine.bench.{name}").main(arguments[1:]) or 0
    except BatchscopeError as refusal:
        print(refusal.message, file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(run_command(sys.argv[1:]))
