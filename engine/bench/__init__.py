"""Command lines that measure: ``python -m engine.bench COMMAND``. Each module here with a ``main`` is a command."""
