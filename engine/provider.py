"""Where rooms get their executors from: the one loaded model, or simulated devices.

The model is loaded once, in a thread of its own, while the server already answers; torch is imported by that thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from engine.errors import BatchscopeError, CommandRefused, ModelUnavailable

log = logging.getLogger("batchscope.provider")

SIMULATED = "simulated:"


class Provider:
    """Makes executors. ``device`` of a room is ``"model"``, or ``"simulated:<gpu>"`` with an optional count (``h100x8``)."""

    def __init__(self, model_name: str | None, *, dtype: str = "auto", device: str = "auto") -> None:
        self.model_name = model_name
        self.dtype, self.device = dtype, device
        self.loaded: Any = None
        self.failed: str | None = None

    def load(self, progress: Callable[[str], None]) -> None:
        """Load the model. ``progress`` gets sentences. Raises :class:`ModelUnavailable`."""
        try:
            from engine.model.loading import load_model

            self.loaded = load_model(self.model_name, dtype=self.dtype, device=self.device, progress=progress)
        except BatchscopeError as problem:
            self.failed = problem.message
            raise
        except Exception as problem:
            log.exception("loading the model failed")
            self.failed = (
                f"The model {self.model_name or ''} could not be loaded ({type(problem).__name__}: {str(problem)[:300]})."
            )
            raise ModelUnavailable("model_unavailable", self.failed) from problem
        self.model_name = self.model_name or self.loaded.spec.name

    def executor(self, device: str, model: str | None) -> tuple[Any, Any]:
        """A new executor and the tokenizer of its room. Raises :class:`CommandRefused` for an unknown device or model."""
        spec = self.spec(device, model)
        if device.startswith(SIMULATED):
            return self._simulated(device, spec)
        from engine.executor.machine import measure_machine
        from engine.executor.model import ModelExecutor

        executor = ModelExecutor(self.loaded)
        executor.machine = measure_machine(str(self.loaded.model.device), str(self.loaded.model.dtype).removeprefix("torch."))
        return executor, self.loaded.tokenizer

    def spec(self, device: str, model: str | None) -> Any:
        """The numbers of a room's model. Raises :class:`CommandRefused` like :meth:`executor`."""
        if device.startswith(SIMULATED) and (self.loaded is None or model not in (None, self.model_name)):
            from engine.executor.catalog import find_model

            return find_model(model or "llama-8b")
        if device != "model" and not device.startswith(SIMULATED):
            raise CommandRefused(
                "unknown_device",
                f'There is no device {device[:40]!r}; a room runs on "model" or on "simulated:h100" and the like.',
            )
        if self.loaded is None:
            raise CommandRefused("model_loading", self.failed or "The model is still loading; try again in a moment.")
        return self.loaded.spec

    @staticmethod
    def _simulated(device: str, spec: Any) -> tuple[Any, Any]:
        from engine.executor.catalog import parse_device
        from engine.executor.pseudo_text import PseudoTokenizer
        from engine.executor.simulated import SimulatedExecutor

        hardware, count = parse_device(device[len(SIMULATED) :])
        tokenizer = PseudoTokenizer()
        return SimulatedExecutor(hardware, spec, count, tokenizer=tokenizer), tokenizer
