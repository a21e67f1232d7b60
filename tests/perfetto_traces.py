"""Reads a trace of `--export perfetto=FILE.pftrace` by Perfetto's own definitions (the package `perfetto` of PyPI, with the decoder
of protobuf), and compares it with the JSON form of the same run.

    python tests/perfetto_traces.py TRACE.pftrace TRACE.json

Perfetto's importer is a program that the package downloads from elsewhere; these definitions are what it reads with. What it does
with them is done here: times are summed up by sequence, names are looked up, begins and ends are paired.
"""

import json
import sys
from collections import Counter, defaultdict

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as definitions

BEGIN, END, INSTANT = 1, 2, 3
CLEARED, NEEDED = 1, 2


class Trace:
    """What either form says: slices, values of counters by time, numbers of arrows that start and that end."""

    def __init__(self):
        self.slices = Counter()
        self.counters = defaultdict(list)
        self.starts, self.ends = set(), set()

    def levels(self):
        """Each counter without the values that change nothing; of several at a time the last."""
        found = {}
        for counter, values in self.counters.items():
            levels = {}
            for at, value in values:
                levels[at] = value
            changes = []
            for at, value in sorted(levels.items()):
                if not changes or changes[-1][1] != value:
                    changes.append((at, value))
            found[counter] = changes
        return found


class Protobuf(Trace):
    """A trace in Perfetto's form."""

    def __init__(self, content):
        super().__init__()
        message = definitions.Trace()
        message.ParseFromString(content)
        unknown = list(unknown_fields(message))
        assert not unknown, f"fields that Perfetto does not have: {unknown[:5]}"
        self.sequences, self.processes, self.tracks, self.counter_tracks = {}, {}, {}, {}
        self.begun = defaultdict(list)
        for packet in message.packet:
            self.packet(packet)
        assert not any(self.begun.values()), "a slice without its end"

    def packet(self, packet):
        sequence = self.sequences.setdefault(packet.trusted_packet_sequence_id, Sequence())
        sequence.read(packet)
        if packet.HasField("track_descriptor"):
            self.describe(packet.track_descriptor)
        if packet.HasField("track_event"):
            assert sequence.is_cleared and packet.sequence_flags & NEEDED, "an event before its sequence"
            sequence.now += packet.timestamp
            self.event(packet.track_event, sequence)

    def describe(self, track):
        if track.HasField("process"):
            self.processes[track.uuid] = track.process.process_name
        elif track.HasField("counter"):
            self.counter_tracks[track.uuid] = (self.processes[track.parent_uuid], track.name)
        else:
            self.tracks[track.uuid] = self.processes[track.parent_uuid]

    def event(self, event, sequence):
        track = event.track_uuid or sequence.defaults.track_uuid
        process, name, now = self.tracks[track], event.name or sequence.names.get(event.name_iid), sequence.now
        for annotation in event.debug_annotations:
            assert annotation.name_iid in sequence.properties, "a property without a name"
        if event.type == BEGIN:
            self.begun[track].append((name, now))
        elif event.type == INSTANT:
            self.slices[process, name, now, now] += 1
        elif event.type == END:
            name, begin = self.begun[track].pop()
            self.slices[process, name, begin, now] += 1
        for counter, value in zip(sequence.defaults.extra_counter_track_uuids, event.extra_counter_values):
            self.counters[self.counter_tracks[counter]].append((now, value))
        self.starts.update(event.flow_ids)
        self.ends.update(event.terminating_flow_ids)


class Sequence:
    """The packets of a writer: its clock, its names, its defaults."""

    def __init__(self):
        self.now, self.is_cleared, self.defaults = 0, False, None
        self.names, self.properties = {}, {}

    def read(self, packet):
        if packet.sequence_flags & CLEARED:
            self.is_cleared, self.names, self.properties = True, {}, {}
        if packet.HasField("clock_snapshot"):
            clock = packet.clock_snapshot.clocks[1]
            assert clock.is_incremental and clock.unit_multiplier_ns == 1000, "times are differences, µs"
            self.now = clock.timestamp
        if packet.HasField("trace_packet_defaults"):
            self.defaults = packet.trace_packet_defaults.track_event_defaults
        self.names.update((entry.iid, entry.name) for entry in packet.interned_data.event_names)
        self.properties.update((entry.iid, entry.name) for entry in packet.interned_data.debug_annotation_names)


def unknown_fields(message, path="Trace"):
    """The fields of a message, and of those in it, that the definitions do not have."""
    yield from ((path, field.field_number) for field in UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if hasattr(value, "__len__") else [value]:
                yield from unknown_fields(inner, f"{path}.{field.name}")


def of_json(document):
    """A trace in the JSON form."""
    trace, processes, begun = Trace(), {}, defaultdict(list)
    for event in document["traceEvents"]:
        phase, at = event["ph"], event.get("ts")
        process = processes.get(event["pid"])
        if phase == "M" and event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif phase == "X":
            trace.slices[process, event["name"], at, at + event["dur"]] += 1
        elif phase == "b":
            begun[process, event["id2"]["local"]].append((event["name"], at))
        elif phase == "e":
            name, begin = begun[process, event["id2"]["local"]].pop()
            trace.slices[process, name, begin, at] += 1
        elif phase == "C":
            trace.counters[process, event["name"]].append((at, event["args"]["value"]))
        elif phase in "sf":
            (trace.starts if phase == "s" else trace.ends).add((event["cat"], event["id"]))
    return trace


def main():
    protobuf, text = sys.argv[1:]
    with open(protobuf, "rb") as file:
        first = Protobuf(file.read())
    with open(text) as file:
        second = of_json(json.load(file))
    assert first.slices == second.slices, f"slices: {(first.slices - second.slices) or (second.slices - first.slices)}"
    assert first.levels() == second.levels(), "counters"
    assert len(first.starts) == len(second.starts) and len(first.ends) == len(second.ends), "arrows"
    assert first.slices and first.counters and first.starts, "an empty trace"
    print(f"ok  {protobuf}: {first.slices.total()} slices, {len(first.counters)} counters, {len(first.starts)} arrows")


main()
