"""Rhai policies, good and bad, for the stand-in of a language model and for tests."""

from __future__ import annotations

LEAST_LOADED = """fn route(r, s) {
    -s.effective_load
}"""

PREFIX_THEN_LOAD = """// @param cache 2 0 10 weight of cached blocks of the prompt
// @param queue 1 0 10 weight of a short queue
fn route(r, s) {
    cache * most_best(s.cached_blocks) + queue * fewest_best(s.effective_load) + (1.0 - s.kv_utilization)
}"""

PREFIX_SHARE = """fn route(r, s) {
    let cached = s.cached_blocks / max(r.prompt_blocks, 1);
    20.0 * cached - s.effective_load
}"""

ROUND_ROBIN = """fn init() { #{ next: 0 } }

fn route(r, s) {
    let target = this.next % s.len;
    this.next = target + 1;
    target
}"""

ALWAYS_FIRST = """fn route(r, s) {
    0
}"""

MOST_LOADED = """fn route(r, s) {
    s.effective_load
}"""

BROKEN = """fn route(r, s) {
    let load = s.effective_load
    -load +
"""

UNKNOWN_FIELD = """fn route(r, s) {
    -s.output_length
}"""

ENDLESS = """fn route(r, s) {
    let i = 0;
    loop { i += 1; }
    i
}"""

NOT_A_NUMBER = """fn route(r, s) {
    (s.queue_depth - s.queue_depth) / (s.queue_depth - s.queue_depth)
}"""

BOMB = """fn route(r, s) {
    let text = "x";
    loop { text += text; }
    0
}"""

BAD = {
    "broken": BROKEN,
    "unknown-field": UNKNOWN_FIELD,
    "endless": ENDLESS,
    "not-a-number": NOT_A_NUMBER,
    "bomb": BOMB,
}
"""Invalid policies."""

# The replies of the model, in this order: invalid, worse and better policies, then again from the start.
REPLIES = (
    BROKEN,
    ALWAYS_FIRST,
    ENDLESS,
    LEAST_LOADED,
    UNKNOWN_FIELD,
    PREFIX_SHARE,
    NOT_A_NUMBER,
    PREFIX_THEN_LOAD,
    BOMB,
    MOST_LOADED,
)
