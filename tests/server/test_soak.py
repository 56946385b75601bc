"""Long runs, only with ``make soak``: hundreds of viewers, and half an hour of everything at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time

import psutil
import pytest

from engine.state import block_counts
from tests.server.load import measure
from tests.server.page import Page, browser

pytestmark = pytest.mark.soak

MINUTES = float(os.environ.get("BATCHSCOPE_SOAK_MINUTES", "30"))
DEVICE = os.environ.get("BATCHSCOPE_SOAK_DEVICE", "model")
FLAT = 1.05  # the last third of a flat curve lies within 5 % of the second


async def test_three_hundred_viewers_at_thirty_steps_a_second():
    result = await measure(viewers=300, pace=30.0, seconds=120.0)
    print(result)
    assert result["frames"] > 0.99 * result["frames_expected"] and result["gaps"] == 0
    assert result["p99_ms"] < 150, result


async def visitor(page: Page, dice: random.Random) -> None:
    """One stranger's short visit: looks, asks, cancels, opens a room, stalls, leaves in the middle."""
    async with browser(page, host=dice.random() < 0.1) as client:
        for _ in range(dice.randrange(1, 6)):
            action = dice.choice(["ask", "ask", "ask", "cancel", "room", "knob", "stall", "history", "junk"])
            if action == "ask":
                await client.answer(
                    "submit",
                    requests=[
                        {
                            "prompt": "words " * dice.randrange(1, 60),
                            "params": {"max_new_tokens": dice.randrange(40), "n": dice.choice([1, 1, 1, 2])},
                        }
                    ],
                )
            elif action == "cancel":
                await client.answer("cancel_all")
            elif action == "room":
                answer = await client.answer("create_room", config={"num_blocks": 32, "block_size": 16}, device="simulated:h100")
                if answer["type"] == "ack":
                    room = answer["result"]["room"]
                    await client.answer("submit", room=room, prompt="in my room", params={"max_new_tokens": 10})
                    await client.answer("close_room", room=room)
            elif action == "knob":
                await client.answer("configure", changes={"max_batch_tokens": dice.choice([16, 64, 128])})
            elif action == "stall":
                client.socket.transport.pause_reading()
                await asyncio.sleep(dice.random() * 2)
                client.socket.transport.resume_reading()
            elif action == "history":
                await asyncio.to_thread(page.fetch, "/api/rooms/main/history?from=0")
            else:
                await client.send("junk" * dice.randrange(100))
            await asyncio.sleep(dice.random())


async def test_mixed_use_leaves_memory_flat_and_no_block_behind():
    page = await asyncio.to_thread(Page, "--tab-grace", "2", device=DEVICE)
    try:
        await asyncio.to_thread(page.until_ready)
        dice, end, samples = random.Random(1), time.monotonic() + MINUTES * 60, []

        async def stream_of_visitors() -> None:
            while time.monotonic() < end:
                with contextlib.suppress(OSError, TimeoutError):
                    await visitor(page, dice)

        crowd = [asyncio.create_task(stream_of_visitors()) for _ in range(8)]
        processes = [psutil.Process(page.process.pid), psutil.Process(page.engine_pid)]
        while time.monotonic() < end:
            await asyncio.sleep(MINUTES * 60 / 60)
            samples.append([process.memory_info().rss for process in processes])
        await asyncio.gather(*crowd)
        async with browser(page, host=True) as host:
            await host.ok("cancel_all")
            state = (await host.ok("snapshot"))["state"]
            counts = block_counts(state)
            assert counts["owned"] == 0 and counts["free"] + counts["cached"] == counts["total"]
        third = len(samples) // 3
        for index, name in enumerate(("page", "engine")):
            second = sum(sample[index] for sample in samples[third : 2 * third]) / third
            last = sum(sample[index] for sample in samples[2 * third :]) / (len(samples) - 2 * third)
            print(name, [sample[index] >> 20 for sample in samples])
            assert last < FLAT * second, f"memory of the {name} process grew from {second / 2**20:.0f} to {last / 2**20:.0f} MiB"
        assert page.health()["engine"]["restarts"] == 0
    finally:
        await asyncio.to_thread(page.stop)
