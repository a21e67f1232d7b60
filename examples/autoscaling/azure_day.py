#!/usr/bin/env python3
"""Makes a day of a trace of an hour (Azure 2023): 24 passes over its requests, at a rate that follows a day's curve.

    python3 azure_day.py AzureLLMInferenceTrace_conv.csv day.csv.gz
    python3 azure_day.py --peak-to-trough 5 --peak-hour 15 AzureLLMInferenceTrace_code.csv day.csv

The requests stay those of the hour, in their order and with their bursts; only the clock runs faster around the peak and
slower around the trough: the rate is that of the hour times 1 + a cos(2π (t - peak) / 24 h), where a = (r - 1) / (r + 1)
for a ratio r of peak to trough. The hour has 19 366 requests (conversation), the day 464 784. The same arguments give the
same bytes.
"""

import argparse
import bisect
import csv
import datetime
import gzip
import io
import math
import sys

HOURS = 24
DAY_US = HOURS * 3_600_000_000
START = datetime.datetime(2023, 11, 16)


def hour_of(path):
    """Arrival (µs from the start of the hour), prompt and output tokens of each request."""
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", newline="") as file:
        rows = []
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                # Seven decimals: Python reads six.
                moment = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26])
                rows.append((moment, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
            except (KeyError, TypeError, ValueError) as error:
                sys.exit(f"{path}:{number}: not a line of an Azure trace: {error}")
    if not rows:
        sys.exit(f"{path}: no requests")
    rows.sort(key=lambda row: row[0])
    first = rows[0][0].replace(microsecond=0)
    us = [(moment - first) // datetime.timedelta(microseconds=1) for moment, _, _ in rows]
    return [(at, prompt, output) for at, (_, prompt, output) in zip(us, rows)]


class Clock:
    """From the time of 24 equal hours to the time of a day with a rate that follows the curve."""

    STEP_US = 10_000_000

    def __init__(self, peak_to_trough, peak_hour):
        amplitude = (peak_to_trough - 1) / (peak_to_trough + 1)
        turn = 2 * math.pi / DAY_US
        peak = peak_hour * 3_600_000_000
        # The integral of the rate: how much of the 24 equal hours has passed at a time of the day.
        passed = lambda t: t + amplitude / turn * (math.sin(turn * (t - peak)) + math.sin(turn * peak))
        self.day = list(range(0, DAY_US + self.STEP_US, self.STEP_US))
        self.passed = [passed(t) for t in self.day]

    def __call__(self, at):
        index = min(max(bisect.bisect_right(self.passed, at) - 1, 0), len(self.day) - 2)
        share = (at - self.passed[index]) / (self.passed[index + 1] - self.passed[index])
        return self.day[index] + round(share * self.STEP_US)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", help="hour of an Azure trace, CSV")
    parser.add_argument("day", help="file to write, CSV; gzip-compressed if its name ends with .gz")
    parser.add_argument("--peak-to-trough", type=float, default=3.0, help="highest rate over lowest, ≥ 1 [3]")
    parser.add_argument("--peak-hour", type=float, default=14.0, help="hour of the highest rate, 0 to 24 [14]")
    args = parser.parse_args()
    if args.peak_to_trough < 1 or not 0 <= args.peak_hour <= 24:
        parser.error("the ratio must be at least 1, the hour from 0 to 24")
    hour = hour_of(args.trace)
    clock = Clock(args.peak_to_trough, args.peak_hour)
    text = io.StringIO()
    text.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    for turn in range(HOURS):
        for at, prompt, output in hour:
            moment = START + datetime.timedelta(microseconds=clock(turn * 3_600_000_000 + at))
            text.write(f"{moment:%Y-%m-%d %H:%M:%S.%f},{prompt},{output}\n")
    data = text.getvalue().encode()
    with open(args.day, "wb") as file:
        # Without a name and a time, so that the same requests give the same bytes.
        file.write(gzip.compress(data, 6, mtime=0) if args.day.endswith(".gz") else data)
    print(f"{args.day}: {HOURS * len(hour)} requests in 24 hours")


if __name__ == "__main__":
    main()
