#!/usr/bin/env bash
# Compiles the plugins with committed modules in policies/, and reports which modules differ.
#
#     sdk/rebuild-guests.sh                  builds into target/guests and compares
#     sdk/rebuild-guests.sh --write          also replaces what differs, and writes policies/SOURCES.toml
#
# Other compilers produce other bytes from the same source; the tests compare the decisions, which must be
# the same. Needs the compilers of sdk/build-guest.sh; exit code 3 if they are missing. Packs with the
# program of this working tree, or with the one that $BLIS names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# module, source, and the folders of its dependencies
modules=(
    "rust-least-loaded plugins/least-loaded sdk/rust sdk/abi"
    "rust-weighted-prefix plugins/weighted-prefix sdk/rust sdk/abi"
    "rust-token-aware plugins/token-aware sdk/rust sdk/abi"
    "slo-scheduler plugins/slo-scheduler sdk/rust sdk/abi"
    "learned-latency plugins/learned-latency sdk/rust sdk/abi"
    "rust-built-ins plugins/built-ins sdk/rust sdk/abi"
    "rust-flow-control plugins/flow-control sdk/rust sdk/abi"
    "rust-queue-scaler plugins/queue-scaler sdk/rust sdk/abi"
    "c-least-loaded plugins/c-least-loaded sdk/c"
)
out=target/guests
list=policies/SOURCES.toml

main() {
    local write=no module source
    [[ ${1:-} == --write ]] && write=yes
    mkdir -p "$out"
    for entry in "${modules[@]}"; do
        read -r module source _ <<<"$entry"
        build "$module" "$source"
        if cmp -s "$out/$module.wasm" "policies/$module.wasm"; then
            echo "$module.wasm: the same bytes"
        elif [[ $write == yes ]]; then
            cp "$out/$module.wasm" "policies/$module.wasm"
            chmod 644 "policies/$module.wasm"
            echo "$module.wasm: replaced"
        else
            echo "$module.wasm: other bytes, in $out"
        fi
    done
    if [[ $write == yes ]]; then sources >"$list"; fi
}

# build MODULE SOURCE: components, so that no run has to convert modules
build() {
    local from=$2
    if [[ ! -f $from/Cargo.toml ]]; then from=$2/policy.c; fi
    sdk/build-guest.sh "$from" "$out/$1.core.wasm"
    ${BLIS:-cargo run --quiet --package blis --} plugin pack "$out/$1.core.wasm" --out "$out/$1.wasm" >/dev/null
}

sources() {
    cat <<'TEXT'
# Sources of the modules in this folder. Written by `sdk/rebuild-guests.sh --write`.
#
# `sources` are folders: for C, their *.c and *.h files; for Rust, Cargo.toml and the files in src.
# `sources_sha256` is the SHA-256 of the lines "<SHA-256 of a file>  <path>", sorted by path.
TEXT
    local module folders sources
    for entry in "${modules[@]}"; do
        read -r module sources <<<"$entry"
        read -ra folders <<<"$sources"
        printf '\n[[module]]\nfile = "%s.wasm"\nsources = [%s]\nsources_sha256 = "%s"\nwasm_sha256 = "%s"\n' \
            "$module" "$(printf ', "%s"' "${folders[@]}" | cut -c 3-)" \
            "$(files "${folders[@]}" | xargs sha256sum | digest)" "$(digest <"policies/$module.wasm")"
    done
}

files() {
    find "$@" -type f \( -name '*.[ch]' -o -name Cargo.toml -o -path '*/src/*.rs' \) | LC_ALL=C sort
}

digest() {
    sha256sum | cut -d ' ' -f 1
}

main "$@"
