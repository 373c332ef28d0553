#!/usr/bin/env python3
"""Coloured terminal text on standard input -> an SVG picture of it on standard output. Needs Python alone.

docs/report.svg is made so, in a folder with the file:
    diagnose llama-3.1-8b-q4_k_m.gguf --device cpu-avx2-16gb --color always | docs/terminal.py "diagnose ..." > docs/report.svg
"""

import html
import re
import sys

CELL, LINE, SIZE, MARGIN, BAR = 8.4, 19, 14, 20, 34
COLOURS = {31: "#f47067", 32: "#6bc46d", 33: "#e0b050", 34: "#6cb6ff", 35: "#dcbdfb", 36: "#56d4dd"}
TEXT = "#d5dce5"
STYLE = (
    "text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    f"font-size:{SIZE}px}}"
)


def runs(line):
    """Pieces of a line and the attributes they are painted with, by the SGR codes that the report uses."""
    colour, bold, faint = None, False, False
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            for code in map(int, part[2:-1].split(";")):
                if code == 0:
                    colour, bold, faint = None, False, False
                colour = COLOURS.get(code, colour)
                bold, faint = bold or code == 1, faint or code == 2
        elif part:
            style = f' fill="{colour or TEXT}"' + (' opacity="0.6"' if faint else "")
            yield part, style + (' font-weight="700"' if bold else "")


def picture(lines, title):
    columns = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)
    width = round(columns * CELL + 2 * MARGIN)
    height = BAR + len(lines) * LINE + MARGIN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
    yield f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>"
    yield f'<rect width="{width}" height="{height}" rx="8" fill="#151b23" stroke="#3d444d"/>'
    for index, colour in enumerate(("#f47067", "#e0b050", "#6bc46d")):
        yield f'<circle cx="{MARGIN + 18 * index}" cy="18" r="5" fill="{colour}"/>'
    for row, line in enumerate(lines):
        column, y = 0, BAR + row * LINE + SIZE
        for text, style in runs(line):
            # Words between wider gaps are as wide as their cells, whatever the viewer's font makes of its characters.
            for words in re.finditer(r"\S+(?: \S+)*", text):
                x, length = MARGIN + (column + words.start()) * CELL, len(words[0]) * CELL
                fit = f'x="{x:.1f}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
                yield f"<text {fit}{style}>{html.escape(words[0])}</text>"
            column += len(text)
    yield "</svg>"


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) > 1 else "a report"
    lines = [f"\x1b[2m$ {command}\x1b[0m"] + sys.stdin.read().rstrip("\n").split("\n")
    print("\n".join(picture(lines, command)))
