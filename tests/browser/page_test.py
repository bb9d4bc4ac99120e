#!/usr/bin/env python3
"""Report pages in a real browser: page_test.py VEIL. Records of every suite in three sizes of grid become pages, and each page is
opened at 1280 and at 400 pixels, light and dark, without a network. First the checks themselves are tried on pages with one fault
each. A missing browser is a failure."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import chromium
import records

# What is wrong with the page that is open, as a list of lines.
CHECKS = r"""
(() => {
  const wrong = [], root = document.documentElement;
  if (root.scrollWidth > root.clientWidth + 1)
    wrong.push(`scrolls sideways: ${root.scrollWidth} of ${root.clientWidth} pixels`);
  const parse = text => { const n = (text.match(/[\d.]+/g) || []).map(Number); return n.length < 3 ? null : [n[0], n[1], n[2], n[3] ?? 1]; };
  const light = c => { const f = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
                       return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const contrast = (a, b) => { const x = light(a), y = light(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color && color[3] > 0.99) return color;
    }
    return [255, 255, 255, 1];
  };
  const tell = (kind, text, more) => wrong.push(`${kind}: "${text.trim().slice(0, 40)}" ${more}`);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || parent.closest('svg, style, script') || !parent.getClientRects().length) continue;
    const ratio = contrast(parse(getComputedStyle(parent).color), behind(parent));
    if (ratio < 4.5) tell('contrast', node.data, ratio.toFixed(2));
  }
  for (const svg of document.querySelectorAll('figure svg')) {
    if (!svg.getClientRects().length) continue;
    const name = svg.closest('figure').querySelector('h3').textContent, frame = svg.getBoundingClientRect();
    // Filled areas in the order in which they are painted; texts between them have their place in it.
    const order = new Map(), areas = [];
    [...svg.querySelectorAll('path, rect, polygon, text')].forEach((shape, place) => {
      order.set(shape, place);
      if (shape.tagName === 'text') return;
      const style = getComputedStyle(shape), fill = parse(style.fill), box = shape.getBoundingClientRect();
      if (fill && style.fill !== 'none' && fill[3] > 0.5 && style.fillOpacity > 0.5 && box.width > 4 && box.height > 4)
        areas.push({shape, place, fill, box, inverse: shape.getScreenCTM().inverse()});
    });
    const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());
    if (!svg.getAttribute('aria-label')) tell('no text alternative', name, '');
    const boxes = texts.map(t => { const b = t.getBoundingClientRect(); return {t, l: b.left, r: b.right, top: b.top, b: b.bottom}; });
    for (const {t, l, r, top, b} of boxes) {
      if (l < frame.left - 1 || r > frame.right + 1 || top < frame.top - 1 || b > frame.bottom + 1)
        tell('clipped', t.textContent, `in ${name}`);
      if (/\d[eE][+-]?\d/.test(t.textContent)) tell('exponent', t.textContent, `in ${name}`);
      // What was painted under the text's middle: the page, or the last shape before it.
      const x = (l + r) / 2, y = (top + b) / 2;
      let ground = behind(svg);
      for (const {shape, place, fill, box, inverse} of areas) {
        if (place > order.get(t)) break;
        if (box.left <= x && x <= box.right && box.top <= y && y <= box.bottom &&
            shape.isPointInFill(new DOMPoint(x, y).matrixTransform(inverse))) ground = fill;
      }
      const ratio = contrast(parse(getComputedStyle(t).fill), ground);
      if (ratio < 4.5) tell('contrast', t.textContent, `${ratio.toFixed(2)} in ${name}`);
    }
    // A line's box is higher than its letters.
    const lower = 0.18;
    for (let i = 0; i < boxes.length; ++i) for (let k = i + 1; k < boxes.length; ++k) {
      const a = boxes[i], c = boxes[k], dy = (z) => lower * Math.min(z.b - z.top, 16);
      if (a.l + 1 < c.r && c.l + 1 < a.r && a.top + dy(a) < c.b - dy(c) && c.top + dy(c) < a.b - dy(a))
        tell('overlap', a.t.textContent, `and "${c.t.textContent}" in ${name}`);
    }
  }
  return wrong;
})()
"""

FAULTS = {
    "scrolls sideways": "<div style='width:3000px'>wide</div>",
    "contrast": "<p style='color:#999'>pale</p>",
    "clipped": "<figure><h3>f</h3><svg aria-label='x' viewBox='0 0 100 50' width='100'><text x='90' y='20'>outside</text></svg></figure>",
    "contrast: \"hidden": "<figure><h3>f</h3><svg aria-label='x' viewBox='0 0 100 50'><rect width='90' height='40' fill='#777'/>"
                          "<text x='10' y='20' fill='#767676'>hidden</text></svg></figure>",
    "overlap": "<figure><h3>f</h3><svg aria-label='x' viewBox='0 0 100 50'><text x='10' y='20'>one</text><text x='12' y='22'>two</text></svg></figure>",
    "exponent": "<figure><h3>f</h3><svg aria-label='x' viewBox='0 0 100 50'><text x='10' y='20'>9.7e+02</text></svg></figure>",
    "no text alternative": "<figure><h3>f</h3><svg viewBox='0 0 100 50'><text x='10' y='20'>a</text></svg></figure>",
    "script error": "<script>nothing.here()</script>",
    "network": "<img src='http://127.0.0.1:9/picture.png' alt='p'>",
}


def wrong_with(browser, address, width, dark):
    events = browser.open(address, width=width, dark=dark)
    found = browser.run(CHECKS)
    for event in events:
        method, data = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            found.append(f"script error: {data['exceptionDetails']['text']}")
        if method == "Log.entryAdded" and data["entry"]["level"] == "error" and data["entry"]["source"] != "network":
            found.append(f"script error: {data['entry']['text']}")
        if method == "Network.requestWillBeSent" and not re.match("file:|data:", data["request"]["url"]):
            found.append(f"network: {data['request']['url']}")
    return found


def keyboard_faults(browser, address):
    """Tab reaches every summary and scrolling table, the focus can be seen, and Enter opens what is folded up."""
    browser.open(address)
    browser.run("document.body.focus(); window.seen = new Set()")
    wanted = browser.run("[...document.querySelectorAll('summary, a[href], [tabindex]')].filter(e => e.getClientRects().length && "
                         "e.checkVisibility()).length")
    for _ in range(wanted + 2):
        browser.press("Tab")
        browser.run("if (document.activeElement !== document.body) window.seen.add(document.activeElement)")
    seen = browser.run("window.seen.size")
    faults = [] if seen >= wanted else [f"keyboard: Tab reaches {seen} of {wanted} elements"]
    if browser.run("[...window.seen].filter(e => { e.focus(); const s = getComputedStyle(e); return s.outlineStyle === 'none'; }).length"):
        faults.append("keyboard: the focus cannot be seen")
    browser.run("document.querySelector('summary').focus()")
    browser.press("Enter")
    if not browser.run("document.querySelector('summary').parentElement.open"):
        faults.append("keyboard: Enter does not open what is folded up")
    return faults


def main():
    veil = pathlib.Path(sys.argv[1]).resolve()
    program = chromium.find_browser()
    if not program:
        sys.exit(chromium.MISSING)
    root = pathlib.Path(tempfile.mkdtemp(prefix="veil_pages_"))
    browser = chromium.Browser(program)
    failed = 0
    try:
        browser.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        for fault, body in FAULTS.items():
            page = root / "fault.html"
            page.write_text("<!doctype html><html lang='en'><meta charset='utf-8'><body>" + body)
            found = wrong_with(browser, page.as_uri(), 1280, False)
            if not any(line.startswith(fault) for line in found):
                failed += 1
                print(f"the checks do not see this fault: {fault} (they say {found})")
        pages = records.write(root)
        # Pages are made on other cores while the browser reads those before.
        makers = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        reports = makers.map(lambda folder: subprocess.run([veil, "report", folder], capture_output=True, text=True), pages)
        for folder, made in zip(pages, reports):
            if made.returncode or made.stderr:
                failed += 1
                print(f"{folder.name}: veil report failed: {made.stderr.strip()}")
                continue
            address = (folder / "index.html").as_uri()
            for width, dark in [(1280, False), (1280, True), (400, False)]:
                found = wrong_with(browser, address, width, dark)
                failed += bool(found)
                for line in found[:12]:
                    print(f"{folder.name}, {width} pixels{', dark' if dark else ''}: {line}")
        for folder in [pages[0], pages[-1]]:
            for line in keyboard_faults(browser, (folder / "index.html").as_uri()):
                failed += 1
                print(f"{folder.name}: {line}")
        if len(browser.call("Page.printToPDF")["data"]) < 10000:
            failed += 1
            print("printing gives no pages")
    finally:
        browser.close()
        if "--keep" in sys.argv:
            print(root)
        else:
            shutil.rmtree(root, ignore_errors=True)
    print(f"{len(pages)} pages, {failed} with faults")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
