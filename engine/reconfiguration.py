"""Building a cache for a configuration, and changing the configuration of a running engine without losing a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cache.layer_groups import CacheLayout
from engine.cache.paged_cache import PagedCache
from engine.cache.sizing import plan_layout
from engine.config import EngineConfig
from engine.errors import BatchscopeError, CapacityExceeded, ConfigRefused, RequestRefused
from engine.plan import StepPlan
from engine.scheduler import SCHEDULERS
from engine.snapshot import layout_document
from engine.submission import check_fits

if TYPE_CHECKING:
    from engine.engine import Engine

#: How often an automatic plan is halved when the device cannot hold it.
SHRINK_TRIES = 5


def build_cache(engine: Engine, config: EngineConfig) -> None:
    """Size, allocate and install a fresh cache and its scheduler; an automatic plan that the device refuses is halved a few
    times, with a note.

    Raises :class:`ConfigRefused` when no cache of this configuration fits.
    """
    executor = engine.executor
    shrink = 1.0
    engine.sizing_notes = []
    for attempt in range(SHRINK_TRIES):
        layout, sizing = plan_layout(executor.spec, config, executor.free_memory(), shrink)
        try:
            executor.allocate(layout, config)
            break
        except CapacityExceeded as refusal:
            if config.num_blocks is not None or attempt == SHRINK_TRIES - 1:
                raise ConfigRefused("no_memory", refusal.message) from refusal
            shrink /= 2
            engine.sizing_notes = [f"The cache was planned smaller ({shrink:.0%}): {refusal.message}"]
    engine.sizing = sizing
    engine.cache = PagedCache(layout, config, engine.recorder)
    _install_scheduler(engine, config)
    engine.recorder.section("layout", layout_document(layout, sizing))
    engine.recorder.section("config", config.to_dict())
    _announce_prefix_cache(engine, config)
    engine.announce(notes=[*executor.info.notes, *engine.sizing_notes])


def reconfigure(engine: Engine, changes: dict[str, Any]) -> dict[str, Any]:
    """See :meth:`Engine.configure`, which also emits the event."""
    old, new = engine.config, engine.config.replaced(changes)
    changed = [name for name, value in new.to_dict().items() if value != getattr(old, name)]
    if not changed:
        return {"changed": [], "rebuilt": False}
    rebuilt = old.needs_rebuild(new)
    layout = plan_layout(engine.executor.spec, new, engine.executor.free_memory())[0] if rebuilt else engine.cache.layout
    _check_all_fit(engine, new, layout)
    # Only now: a refused change must leave no trace, not even in which step is launched before which is collected.
    engine.drain()
    engine.note("configure", changes={name: getattr(new, name) for name in changed})
    if old.scheduler_type == "static" and (rebuilt or new.scheduler_type != "static"):
        engine.release_static_batch(engine.now())
    if rebuilt:
        _rebuild(engine, old, new)
    else:
        engine.cache.configure(new)
        _install_scheduler(engine, new)
        engine.executor.configure(new)
        _announce_prefix_cache(engine, new)
    engine.config = new
    engine.recorder.section("config", new.to_dict())
    engine.recorder.section("changed", changed)
    engine.recorder.section("rebuilt", rebuilt)
    return {"changed": changed, "rebuilt": rebuilt}


def _check_all_fit(engine: Engine, config: EngineConfig, layout: CacheLayout) -> None:
    for request in engine.scheduler.requests.values():
        if request.ended:
            continue
        try:
            check_fits(request.num_prompt_tokens, request.params, layout, config, engine.executor.spec, request.id)
        except RequestRefused as refusal:
            raise ConfigRefused("config_strands", f"{refusal.message[:-1]}; wait for it or cancel it before this change.") from None


def _rebuild(engine: Engine, old: EngineConfig, new: EngineConfig) -> None:
    """A new cache. All blocks of the old one are given back first, so nobody refers to it."""
    scheduler = engine.scheduler
    for request in scheduler.requests.values():
        engine.cache.release(request)
        request.block_hashes.clear()        # digests are of blocks of the old size
        was_active = request.id in scheduler.active
        if was_active:
            scheduler.requeue(request)
        if was_active or request.num_computed:
            scheduler.soft_reset(request, "rebuild")
    engine.carried = StepPlan(0)
    try:
        build_cache(engine, new)
    except BatchscopeError:
        build_cache(engine, old)
        engine.flush("config", engine.now())
        raise


def _install_scheduler(engine: Engine, config: EngineConfig) -> None:
    scheduler = SCHEDULERS[config.scheduler_type](config, engine.cache, engine.recorder, engine.now, engine.fail,
                                                 lambda: engine.release_static_batch(engine.now()))
    if hasattr(engine, "scheduler"):
        scheduler.adopt(engine.scheduler)
    engine.scheduler = scheduler


def _announce_prefix_cache(engine: Engine, config: EngineConfig) -> None:
    engine.announce(prefix_cache=engine.cache.prefix_cache_status(config))
