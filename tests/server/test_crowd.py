"""A hundred visitors at once: everybody is answered or refused by rule, in the order of arrival, and nobody is lost."""

from __future__ import annotations

import asyncio
import contextlib

from engine.state import apply_event
from tests.server.page import browser, next_event, running

VISITORS = 100


async def test_a_hundred_visitors_submit_at_once_and_all_are_served_in_order():
    with running() as page:
        async with contextlib.AsyncExitStack() as stack:
            watcher = await stack.enter_async_context(browser(page))
            state = (await next_event(watcher, lambda message: message["type"] == "snapshot"))["state"]
            visitors = [await stack.enter_async_context(browser(page, subscribe=None)) for _ in range(VISITORS)]
            answers = await asyncio.gather(
                *(
                    visitor.ok(
                        "submit",
                        requests=[{"prompt": f"visitor {number} prompt {n}", "params": {"max_new_tokens": 6}} for n in range(2)],
                    )
                    for number, visitor in enumerate(visitors)
                )
            )
            ids = {
                name: visitor.hello["visitor"]
                for visitor, answer in zip(visitors, answers, strict=True)
                for name in answer["ids"]
            }
            assert len(ids) == 2 * VISITORS
            arrived, admitted, finished = [], [], []
            while len(finished) < len(ids):
                message = await next_event(watcher, lambda one: "seq" in one)
                apply_event(state, message)
                arrived += [record["id"] for record in message.get("requests", ())]
                for transition in message.get("transitions", ()):
                    if transition["cause"] == "admitted":
                        admitted.append(transition["id"])
                    elif transition["to"] == "finished":
                        finished.append(transition["id"])
            assert sorted(finished) == sorted(ids), "nobody is lost, nobody ends twice"
            assert admitted == arrived, "first come, first served"
            # Fair to within one batch: nobody ends earlier than those who came more than two batches before.
            place = {name: index for index, name in enumerate(arrived)}
            assert all(abs(place[name] - index) <= 16 for index, name in enumerate(finished))


async def test_past_the_caps_everybody_is_refused_by_rule_and_the_rest_is_served():
    with running(limits={"max_queue_length": 60, "max_requests_per_visitor": 2}) as page:
        async with contextlib.AsyncExitStack() as stack:
            host = await stack.enter_async_context(browser(page, host=True))
            await host.ok("pause")
            visitors = [await stack.enter_async_context(browser(page, subscribe=None)) for _ in range(40)]
            answers = await asyncio.gather(
                *(visitor.ok("submit", requests=[{"prompt": "x", "params": {"max_new_tokens": 2}}] * 3) for visitor in visitors)
            )
            assert all(len(answer["ids"]) + len(answer["refused"]) == 3 for answer in answers)
            codes = {entry["code"] for answer in answers for entry in answer["refused"]}
            assert sum(len(answer["ids"]) for answer in answers) == 60 and codes == {"too_many_requests", "queue_full"}
            await host.ok("resume")
            done = 0
            while done < 60:
                message = await next_event(host, lambda one: "seq" in one)
                done += sum(one["to"] == "finished" for one in message.get("transitions", ()))
