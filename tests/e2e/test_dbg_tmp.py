import sys
from tests.e2e.test_behind_nginx import *
from tests.e2e.conftest import browser
def test_x(address, browser):
    p=browser.new_page()
    p.on("console", lambda m: print("RESP", m.type, m.text, m.location) if m.type=="error" else None); p.on("response", lambda r: print("RESP", r.status, r.url) if r.status>=400 else None)
    p.goto(address); p.wait_for_function("window.batchscope?.screen?.mounted", timeout=60000); p.locator("#bs-prompt textarea").fill("What is the capital of France?"); p.locator("#bs-send").click(); p.wait_for_timeout(5000)

