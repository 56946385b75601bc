"""Ask whether the Hugging Face Hub answers, without ever waiting long for one that does not."""

from __future__ import annotations

import os
import threading
import time
import urllib.error
import urllib.request

#: Longest wait for the Hub in all. A name lookup alone can hang longer than any socket timeout, hence the thread below.
PATIENCE = 4.0


class HubProbe:
    """One question to the Hub, asked in the background from the moment of construction.

    ``HF_HUB_OFFLINE`` (or ``TRANSFORMERS_OFFLINE``) answers it with no without asking; ``HF_ENDPOINT`` names another Hub.
    """

    def __init__(self) -> None:
        self.endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        self.why = ""
        self._answered: bool | None = None
        self._asked = time.monotonic()
        if any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")
               for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")):
            self._answered, self.why = False, "the environment says offline (HF_HUB_OFFLINE)"
            return
        self._thread = threading.Thread(target=self._ask, name="hub-probe", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        request = urllib.request.Request(self.endpoint + "/api/models?limit=1", headers={"User-Agent": "batchscope"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                answer.read(1)
            self._answered = True
        except urllib.error.HTTPError as error:
            # A refusal is an answer too, but a proxy's or an outage's is not the Hub's.
            self._answered = error.code in (401, 404, 429)
            self.why = f"{self.endpoint} answered {error.code}"
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            self._answered, self.why = False, f"{self.endpoint} does not answer ({reason})"

    def reachable(self, patience: float = PATIENCE) -> bool:
        """Whether the Hub answered within ``patience`` seconds of being asked; the wait is only what is left of them."""
        if self._answered is None:
            self._thread.join(max(0.0, self._asked + patience - time.monotonic()))
        if self._answered is None:
            self.why = f"{self.endpoint} did not answer within {patience:g} s"
        return bool(self._answered)


def in_hub_cache(repo_id: str) -> str | None:
    """Folder of a complete download of ``repo_id`` in the Hub's own cache on this machine, or ``None``.

    Complete means: the configuration, a tokenizer, and every shard that the weight index names.
    """
    import json
    from pathlib import Path

    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo_id, "config.json")
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return None
    for single in ("model.safetensors", "pytorch_model.bin"):
        if (folder / single).exists():
            return str(folder)
        index = folder / f"{single}.index.json"
        if index.exists():
            shards = set(json.loads(index.read_text())["weight_map"].values())
            if all((folder / shard).exists() for shard in shards):
                return str(folder)
    return None
