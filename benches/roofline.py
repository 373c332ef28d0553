"""Draws records of `paired.py` as a roofline: operations a second over operations for each byte of weights.

    python benches/roofline.py benches/record/two-cores-zen5.json --out docs/roofline.svg

The slope is the read bandwidth and the flat roofs are the arithmetic peaks that the same runs measured. A circle is one
token at a time, a diamond some sequences together (eight, where `paired.py` was given `--sessions 8`), a square a
prompt. A prompt reads the weights once for each chunk of 512 tokens.
"""

import argparse
import json
import math
import statistics
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 30, 60
CHUNK = 512
COLOURS = ["#1b6ca8", "#b5482a", "#3b8f4e", "#7a4fa3", "#a07d1c", "#c2417c", "#4d6f77", "#6b5b4b"]


class Axis:
    """A logarithmic axis from `least` to `most` on the pixels from `start` to `end`."""

    def __init__(self, least: float, most: float, start: float, end: float):
        self.least, self.most, self.start, self.end = least, most, start, end

    def at(self, value: float) -> float:
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [10.0 ** power for power in range(math.ceil(math.log10(self.least) - 1e-9),
                                                 math.floor(math.log10(self.most) + 1e-9) + 1)]


def points(row: dict, prompt: int) -> list[tuple[str, float, float]]:
    """Kind, operations for a byte of weights, and operations a second in units of 1e9."""
    operations, weights = row["operations_per_token"], row["weight_bytes_per_token"]
    found = [("circle", 1, row["decode"]["tok_s"] * operations / 1e9)]
    if "batch" in row:
        found.append(("diamond", row["batch"]["sessions"], row["batch"]["tok_s"] * operations / 1e9))
    # Of a prompt the head computes only the last token, which the share leaves out.
    found.append(("square", min(prompt, CHUNK), row["arithmetic_share"] * row["arithmetic_gop_s"]))
    return [(kind, tokens * operations / weights, speed) for kind, tokens, speed in found]


def mark(kind: str, x: float, y: float, colour: str) -> str:
    """A point."""
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if kind == "diamond" else ""
    return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{colour}"{turn}/>'


def text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    """Some words."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def draw(record: dict) -> str:
    """The picture."""
    rows = record["rows"]
    bandwidth = statistics.median(row["bandwidth_gb_s"] for row in rows)
    roofs = sorted({round(row["arithmetic_gop_s"]) for row in rows})
    # Peaks of one instruction differ from run to run: what lies within a tenth is one roof.
    merged: list[list[int]] = []
    for roof in roofs:
        if merged and roof < 1.1 * merged[-1][0]:
            merged[-1].append(roof)
        else:
            merged.append([roof])
    peaks = [statistics.median(roofs) for roofs in merged]
    x = Axis(0.5, 4000, LEFT, WIDTH - RIGHT)
    y = Axis(10, 2000, HEIGHT - BOTTOM, TOP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12" fill="#333">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in x.ticks():
        out.append(f'<path d="M{x.at(tick):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>')
        out.append(text(x.at(tick), HEIGHT - BOTTOM + 18, f"{tick:g}", "middle"))
    for tick in y.ticks():
        out.append(f'<path d="M{LEFT} {y.at(tick):.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>')
        out.append(text(LEFT - 8, y.at(tick) + 4, f"{tick:g}", "end"))
    start, top = y.least / bandwidth, max(peaks)
    out.append(f'<path d="M{x.at(max(start, x.least)):.1f} {y.at(max(y.least, x.least * bandwidth)):.1f}'
               f'L{x.at(top / bandwidth):.1f} {y.at(top):.1f}" stroke="#333" stroke-width="1.5" fill="none"/>')
    out.append(text(x.at(1.0), y.at(bandwidth) - 14, f"{bandwidth:.0f} GB/s read", "middle"))
    for peak in peaks:
        out.append(f'<path d="M{x.at(peak / bandwidth):.1f} {y.at(peak):.1f}H{WIDTH - RIGHT}" stroke="#333" '
                   f'stroke-width="1.5"/>')
        out.append(text(WIDTH - RIGHT - 4, y.at(peak) - 6, f"{peak:.0f} Gop/s", "end"))
    for index, row in enumerate(rows):
        colour = COLOURS[index % len(COLOURS)]
        out += [mark(kind, x.at(a), y.at(b), colour) for kind, a, b in points(row, record["prompt_tokens"])]
        out.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{TOP + 20 * index}" width="10" height="10" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 30, TOP + 20 * index + 9, row["model"].removesuffix(".gguf")))
    legend = [("circle", "one token at a time"), ("diamond", "sequences together"), ("square", "a prompt")]
    for index, (kind, words) in enumerate(legend):
        at = HEIGHT - BOTTOM - 60 + 20 * index
        out += [mark(kind, WIDTH - RIGHT + 19, at, "#333"), text(WIDTH - RIGHT + 30, at + 4, words)]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "operations for each byte of weights", "middle"))
    out.append(text(18, middle, "10^9 operations a second", "middle", f' transform="rotate(-90 18 {middle:.0f})"'))
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.write_text(draw(json.loads(arguments.record.read_text())))


if __name__ == "__main__":
    main()
