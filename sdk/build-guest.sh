#!/usr/bin/env bash
# Compiles a policy to a WebAssembly module: sdk/build-guest.sh SOURCE OUT.wasm
#
# SOURCE is the folder of a Rust crate, or a C file. `blis` loads the module as it is.
#
# Rust, the first that is installed:
#   1. a rustup toolchain with the target wasm32-unknown-unknown;
#   2. Debian's rustc-web, cargo-web and rust-web-src, which compile the standard library too.
# C: $WASM_CC, else clang with wasm-ld, else zig from PyPI (`pip install ziglang`).
# Exit code 3: no compiler; the message names packages to install.
set -euo pipefail

target=wasm32-unknown-unknown
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

main() {
    if (($# != 2)); then
        echo "usage: ${0##*/} CRATE_FOLDER|FILE.c OUT.wasm" >&2
        exit 2
    fi
    if [[ -f $1/Cargo.toml ]]; then
        build_rust "$1" "$2"
    elif [[ -f $1 && $1 == *.c ]]; then
        build_c "$1" "$2"
    else
        echo "$1: neither a folder with a Cargo.toml nor a C file" >&2
        exit 2
    fi
}

missing() {
    printf '%s\n' "$@" >&2
    exit 3
}

build_rust() {
    local cargo rustc extra=() flags sysroot module
    sysroot=$(rustc --print sysroot 2>/dev/null || true)
    if [[ -n $sysroot && -d $sysroot/lib/rustlib/$target/lib ]]; then
        cargo=cargo rustc=rustc
    else
        cargo=/usr/bin/cargo rustc=/usr/bin/rustc
        if [[ ! -x $cargo || ! -x $rustc || ! -d /usr/lib/rustlib/src/rust/library ]]; then
            missing "No Rust compiler for WebAssembly. Either of these is enough:" \
                "  rustup target add $target" \
                "  apt-get install --no-install-recommends rustc-web cargo-web rust-web-src   (Debian; as root)"
        fi
        export RUSTC_BOOTSTRAP=1
        CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$(wasm_linker) ||
            missing "No linker for WebAssembly. Any of these is enough: a rustup toolchain, apt-get install lld"
        export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER
        # No backtraces inside the module: those of the host are better.
        extra=(-Zbuild-std=std,panic_abort -Zbuild-std-features=)
    fi

    # Modules must not contain local paths. 256 KiB of stack are enough.
    flags="-C link-arg=-zstack-size=262144"
    flags+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=registry"
    flags+=" --remap-path-prefix=$("$rustc" --print sysroot)/lib/rustlib/src/rust=rust"
    flags+=" --remap-path-prefix=$here=sdk"

    # The profile of this workspace, also for crates elsewhere.
    module=$(
        RUSTC=$(command -v "$rustc") RUSTFLAGS=$flags "$cargo" build "${extra[@]}" --target "$target" \
            --manifest-path "$1/Cargo.toml" --lib --profile guest --message-format json-render-diagnostics \
            --config 'profile.guest.inherits="release"' --config 'profile.guest.opt-level=3' \
            --config 'profile.guest.strip="debuginfo"' --config 'profile.guest.panic="abort"' \
            --config 'profile.guest.lto="fat"' --config 'profile.guest.codegen-units=1' \
            --config 'profile.guest.debug=false' |
            grep -o '"[^"]*\.wasm"' | tail -1 | tr -d '"'
    ) || true
    if [[ -z $module ]]; then
        echo "$1: no module was built; does [lib] in its Cargo.toml have crate-type = [\"cdylib\"]?" >&2
        exit 1
    fi
    cp "$module" "$2"
}

# A linker for WebAssembly, from rustup's toolchains or Debian's packages.
wasm_linker() {
    local found
    for found in "${RUSTUP_HOME:-$HOME/.rustup}"/toolchains/*/lib/rustlib/*/bin/rust-lld \
        /usr/bin/wasm-ld /usr/bin/wasm-ld-*; do
        if [[ -x $found ]]; then
            echo "$found"
            return
        fi
    done
    return 1
}

build_c() {
    local cc
    if [[ -n ${WASM_CC:-} ]]; then
        read -ra cc <<<"$WASM_CC"
    elif command -v clang >/dev/null && command -v wasm-ld >/dev/null; then
        cc=(clang "--target=$target")
    elif "${PYTHON:-python3}" -m ziglang version >/dev/null 2>&1; then
        cc=("${PYTHON:-python3}" -m ziglang cc -target wasm32-freestanding)
    else
        missing "No C compiler for WebAssembly. Either of these is enough:" \
            "  apt-get install clang lld   (Debian; as root)" \
            "  pip install ziglang         (for the python3 in PATH, or the one that PYTHON names)"
    fi
    "${cc[@]}" -O3 -nostdlib -fvisibility=hidden -I "$here/c" -Wall -Wextra -mbulk-memory -g0 \
        -Wl,--no-entry -Wl,-z,stack-size=262144 -o "$2" "$1"
}

main "$@"
