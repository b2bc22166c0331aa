"""Loads report pages in headless Chromium and uses them as a person would. Usage: browser.py PAGE.html… [--shots DIR]

For every page: no console error, charts drawn, keyboard and pointer work on the timeline, evidence selects its event, a strip
block changes the occupancy picture, nothing overflows at 360 px, dark mode draws, axe finds nothing serious.
Needs Debian's chromium, chromium-driver and python3-selenium; axe.min.js from AXE_JS (skipped, and said, when that is unset).
"""
import os
import pathlib
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


def browser():
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = "/usr/bin/chromium"
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


class Check:
    def __init__(self, driver, page):
        self.driver, self.page, self.failures = driver, page, []

    def that(self, condition, what):
        if not condition:
            self.failures.append(what)

    def text(self, selector):
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found[0].text if found else ""

    def run(self):
        started = time.monotonic()
        self.driver.get("file://" + str(self.page.resolve()))
        self.that(time.monotonic() - started < 2, f"took {time.monotonic() - started:.1f} s to open, limit 2 s")
        time.sleep(0.4)
        self.that(len(self.text("h1")) > 10, "no verdict")
        self.that("<script" not in self.text("main"), "markup shown in place of text") if "hostile" not in self.page.name else None
        charts = self.driver.execute_script("return [...document.querySelectorAll('.chart canvas')].map(c => !!c.chart && c.width > 0)")
        self.that(all(charts), "a chart is not drawn")
        self.that(len(charts) > 0 or "explain" in self.page.name, "no chart on the page")
        self.timeline()
        self.strips()
        self.evidence()
        self.downloads()
        self.layout()
        self.dark()
        self.accessibility()
        for line in self.driver.get_log("browser"):
            self.that(line["level"] not in ("SEVERE", "ERROR"), f"console: {line['message'][:300]}")
        return self.failures

    def timeline(self):
        canvases = self.driver.find_elements(By.CSS_SELECTOR, ".timeline canvas")
        if not canvases:
            self.that("compare" not in self.page.name, "no timeline")
            return
        canvas = canvases[0]
        output = lambda: self.text(".timeline output")
        view = lambda: canvas.get_attribute("data-view")
        canvas.click()
        canvas.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
        first = output()
        self.that("event" in first, f"arrow key selects nothing: {first!r}")
        canvas.send_keys(Keys.ARROW_RIGHT)
        self.that(output() != first or self.driver.execute_script("return page.timelines[0].events.length") == 1, "arrow key does not step")
        before = view()
        canvas.send_keys("w", "w")
        zoomed = view()
        self.that(zoomed != before, "W does not zoom")
        canvas.send_keys("d")
        self.that(view() != zoomed, "D does not move")
        canvas.send_keys("a", "s", Keys.HOME)
        search = self.driver.find_element(By.CSS_SELECTOR, ".timeline input")
        search.send_keys("zzz-no-such-event")
        self.that("0 events match" in output(), "search says nothing")
        search.clear()

    def strips(self):
        blocks = self.driver.find_elements(By.CSS_SELECTOR, ".strip rect")
        panel = self.driver.find_elements(By.CSS_SELECTOR, "section .panel h3")
        if blocks and panel:
            before = panel[0].text
            self.driver.execute_script("arguments[0].focus()", blocks[-1])
            blocks[-1].send_keys(Keys.ENTER)
            after = self.text("section .panel")
            self.that(len(after) > 0 and (after != before or len(blocks) == 1), "a strip block does not change the occupancy picture")

    def evidence(self):
        buttons = [b for b in self.driver.find_elements(By.CSS_SELECTOR, ".finding button") if b.is_displayed()]
        if buttons:
            number = buttons[0].text.split()[-1]
            buttons[0].click()
            shown = self.text(".timeline output")
            status = " ".join(s.text for s in self.driver.find_elements(By.CSS_SELECTOR, ".finding [role=status]"))
            self.that(f"event {number}" in shown or f"event {number}" in status, f"evidence {number} selects nothing")

    def downloads(self):
        texts = [b.text for b in self.driver.find_elements(By.CSS_SELECTOR, "#buttons button")]
        self.that(any("JSON" in t for t in texts), "no data download")
        good = self.driver.execute_script(
            "return (page.traces ?? []).every(t => { const b = trace_bytes(t.gzip_base64); return b[0] === 31 && b[1] === 139 && b.length > 60; })")
        self.that(good, "an embedded trace is not gzip")
        if "compare" in self.page.name:
            self.that(any("Download trace" in t for t in texts), "no trace download")

    def layout(self):
        self.driver.set_window_size(500, 900)
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True})
        time.sleep(0.2)
        wide = self.driver.execute_script("return document.documentElement.scrollWidth")
        self.that(wide <= 361, f"overflows at 360 px: {wide}")
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.set_window_size(1200, 1000)

    def dark(self):
        background = "return getComputedStyle(document.body).backgroundColor"
        light = self.driver.execute_script(background)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        self.that(self.driver.execute_script(background) != light, "no dark mode")
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def accessibility(self):
        axe = os.environ.get("AXE_JS")
        if not axe:
            print("axe: skipped, AXE_JS is not set")
            return
        # Through the debugger, which the page's own policy does not bind.
        self.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        self.driver.get(self.driver.current_url)
        time.sleep(0.4)
        self.driver.execute_script(pathlib.Path(axe).read_text(encoding="utf-8"))
        result = self.driver.execute_async_script("const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done, e => done({violations: [{id: String(e), impact: 'critical', nodes: []}]}))")
        for violation in result["violations"]:
            serious = violation.get("impact") in ("serious", "critical")
            self.that(not serious, f"axe: {violation['id']} ({violation.get('impact')}): {[n.get('html', '')[:160] for n in violation['nodes'][:3]]}")
        self.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})


def main():
    arguments = sys.argv[1:]
    shots = None
    if "--shots" in arguments:
        at = arguments.index("--shots")
        shots = pathlib.Path(arguments[at + 1])
        del arguments[at:at + 2]
    driver, failed = browser(), 0
    try:
        for name in arguments:
            page = pathlib.Path(name)
            failures = Check(driver, page).run()
            failed += bool(failures)
            print(("held  " if not failures else "BROKEN") + f" {page.name}", *failures, sep="\n       ")
            if shots:
                height = driver.execute_script("return document.documentElement.scrollHeight")
                driver.set_window_size(1200, min(height + 140, 6000))
                time.sleep(0.3)
                driver.save_screenshot(str(shots / (page.stem + ".png")))
                driver.set_window_size(1200, 1000)
    finally:
        driver.quit()
    print(f"{len(arguments) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
