#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plan_page.py PLAN PLAN_PAGE [--browser] OPTION...: makes a page of the JSON with these options and compares them.

Every figure of the page names a number of the JSON and is that number; bars are as long as their numbers and points
stand where theirs say; nothing is loaded from elsewhere, and no word of a specification becomes an element. With
--browser the page is what a headless chromium makes of it, after its script ran; without a chromium that is skipped.
"""
import collections
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
MOST_BYTES = 400_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EMPTY = {"meta", "link", "img", "br", "hr", "input", "path", "rect", "circle"}
DATA = {"rect": "width", "circle": "cy"}


def fail(text):
    sys.exit(f"the page must {text}")


class Page(html.parser.HTMLParser):
    """Elements with their attributes, the text of those that hold a figure, and the charts that marks are in."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements = collections.Counter()
        self.figures = []  # (tag, attributes, chart)
        self.texts = {}
        self.attributes = []
        self.chart = 0
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements[tag] += 1
        self.chart += tag == "svg"
        self.attributes.append((tag, attributes))
        if "data-path" in attributes:
            self.figures.append((tag, attributes, self.chart))
        self.open.append(len(self.figures) - 1 if tag == "span" and "data-path" in attributes else None)
        if tag in EMPTY:
            self.open.pop()

    handle_startendtag = lambda self, tag, attributes: self.handle_both(tag, attributes)

    def handle_both(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in EMPTY and self.open:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] is not None:
            self.texts[self.open[-1]] = data


def number_at(document, pointer):
    for part in pointer.split("/")[1:]:
        document = document[int(part) if isinstance(document, list) else part]
    return document


def check_figures(page, document):
    for index, (tag, attributes, _) in enumerate(page.figures):
        for path, value in (("data-path", "data-value"), ("data-x-path", "data-x-value")):
            if path in attributes and number_at(document, attributes[path]) != json.loads(attributes[value]):
                fail(f"show the JSON's {attributes[path]}, but it has {attributes[value]}")
        if tag == "span" and not rounds(json.loads(attributes["data-value"]), float(page.texts[index])):
            fail(f"round {attributes['data-path']} = {attributes['data-value']}, but it says {page.texts[index]}")


def rounds(exact, shown):
    """Whether a figure is what is shown: with three digits in a unit of 1, 1e6, 1e9 or 1e12, or with one after the
    point in percent."""
    def digits(value):
        return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3

    in_units = [(exact / unit, digits(exact / unit)) for unit in (1, 1e6, 1e9, 1e12)] + [(100 * exact, 1)]
    return any(abs(value - shown) <= 0.5001 * 10**-places for value, places in in_units)


def check_marks(page):
    """Within a chart, lengths of bars and heights of points are one linear function of their numbers."""
    for tag, geometry in DATA.items():
        charts = collections.defaultdict(list)
        for one, attributes, chart in page.figures:
            if one == tag:
                charts[chart].append((json.loads(attributes["data-value"]), float(attributes[geometry])))
        for chart, marks in charts.items():
            (low, at_low), (high, at_high) = min(marks), max(marks)
            scale = (at_high - at_low) / (high - low) if high > low else 0
            for value, at in marks:
                if abs(at_low + (value - low) * scale - at) > 0.02:
                    fail(f"draw {value} to scale in chart {chart}, but it is at {at}")
            if tag == "rect" and abs(at_low - low * scale) > 0.02 and scale:
                fail(f"draw bars of chart {chart} from 0 on")
            if (scale > 0) != (tag == "rect") and scale:
                fail(f"draw more of chart {chart} the right way")


def expected_bars(document):
    """The numbers of the JSON that a page shows as bars, without those that are 0."""
    out = []
    ranks = document.get("ranks", [])
    if not ranks:
        return collections.Counter()
    plans = [f"/ranks/{rank}" for rank in range(0, len(ranks), (len(ranks) + 15) // 16 or 1)]
    others = [name for name in ("recipe", "without_pipeline") if "plan" in document[name]]
    others = [name for name in others if name == "recipe" or document[name]["plan"] != document.get("plan")]
    for at in plans + ["/" + name for name in others]:
        out += [f"{at}/bytes/{name}" for name in number_at(document, at + "/bytes")]
    if not document["problem"]:
        out += 2 * [f"/seconds/{name}" for name in document["seconds"]]
        out += [f"/traffic/{name}/hidden_seconds" for name in document["traffic"]]
        out += [f"/binding/{i}/saves" for i in range(len(document["binding"]))]
        out += [f"/{name}/seconds/{part}" for name in others if "problem" not in document[name]
                for part in document[name]["seconds"]]
    return collections.Counter(path for path in out if number_at(document, path) > 0)


def expected_points(document):
    out = collections.Counter()
    sweeps = {f"/sweeps/{i}": sweep for i, sweep in enumerate(document["sweeps"])}
    if not document["problem"] and document["sweep_with_1f1b"]:
        sweeps["/sweep_with_1f1b"] = document["sweep_with_1f1b"]
    for at, sweep in sweeps.items():
        if document["problem"] and all("problem" in point["best"] for point in sweep["points"]):
            continue
        for which in ("best", "without_pipeline") if at != "/sweep_with_1f1b" else ("best",):
            for i, point in enumerate(sweep["points"]):
                if "problem" not in point[which]:
                    out[f"{at}/points/{i}/{which}/mfu_causal"] += 1
    return out


def check(text, document, in_browser):
    page = Page(text)
    check_figures(page, document)
    needed = {f"/dividing_sequences/{i}/saves" for i in range(len(document["dividing_sequences"]))}
    needed |= set() if document["problem"] else {"/inputs/chip/peak", "/took_seconds"}
    needed |= {"/unnamed_program/step_seconds"} if document["unnamed_program"] else set()
    if missing := needed - {attributes["data-path"] for _, attributes, _ in page.figures}:
        fail(f"show {missing}")
    check_marks(page)
    for tag, expected in (("rect", expected_bars(document)), ("circle", expected_points(document))):
        shown = collections.Counter(attributes["data-path"] for one, attributes, _ in page.figures if one == tag)
        if shown != expected:
            fail(f"show these as {tag}: {expected - shown}, and not these: {shown - expected}")
    if page.elements["script"] != 1 or page.elements["style"] != 1 or page.elements["b"] > 4:
        fail(f"hold one script and one style and no element out of a word, but holds {page.elements}")
    for tag, attributes in page.attributes:
        for name in ("src", "href", "data", "action"):
            if name in attributes:
                fail(f"load nothing, but <{tag}> has {name}={attributes[name]}")
    if len(text.encode()) > MOST_BYTES:
        fail(f"have at most {MOST_BYTES} bytes, but has {len(text.encode())}")
    if re.search(r"url\((?!#)|@import", text):
        fail("load nothing in its style")
    if in_browser and dict(page.attributes[0][1]).get("data-script") != "ran":
        fail("run its script to the end")
    return len(page.figures)


def dump(browser, page, folder):
    done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                           "--enable-logging=stderr", "--dump-dom", page.as_uri()],
                          capture_output=True, text=True, timeout=90)
    if "</html>" not in done.stdout:
        print(f"skipped: {browser} does not run here: {done.stderr[-300:]}")
        sys.exit(SKIPPED)
    if said := [line for line in done.stderr.splitlines() if "CONSOLE" in line]:
        fail(f"have a script without a mistake, but the browser says {said}")
    return done.stdout


def main():
    program, maker, *options = sys.argv[1:]
    in_browser = options[0] == "--browser"
    options = options[in_browser:]
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if in_browser and not browser:
        print("skipped: there is no chromium to look at the page with")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.html"
        said = subprocess.run([program, *options, "--json"], capture_output=True, text=True)
        if said.returncode > 1 or not said.stdout:
            sys.exit(f"plan must print JSON, but says {said.stderr}")
        document = json.loads(said.stdout)
        made = subprocess.run([maker], input=said.stdout, capture_output=True, text=True)
        if made.returncode != 0:
            sys.exit(f"plan_page must make a page, but says {made.stderr}")
        page.write_text(made.stdout)
        text = dump(browser, page, folder) if in_browser else page.read_text()
        print(f"{check(text, document, in_browser)} figures are those of the JSON")


if __name__ == "__main__":
    main()
