#!/bin/sh
# For SkyDiscover's container protocol: evaluate.sh PATH train|test, one JSON object on stdout.
exec python -m blis_sim.skydiscover "$1" "${2:-train}" --suite "{{suite}}"
