#!/usr/bin/env bash
# Compiles a policy to WebAssembly: sdk/build-guest.sh SOURCE OUT.wasm
#
# SOURCE is the folder of a Rust crate, or a file in C (.c), Zig (.zig), Python (.py) or JavaScript (.js). `blis` loads the
# result as it is: a module, of Python and JavaScript a component.
#
# Rust, the first that is installed:
#   1. a rustup toolchain with the target wasm32-unknown-unknown;
#   2. Debian's rustc-web, cargo-web and rust-web-src, which compile the standard library too.
# C: $WASM_CC, else clang with wasm-ld, else zig from PyPI (`pip install ziglang`).
# Zig: that zig.
# Python: componentize-py from PyPI, in PATH or beside the python3 in PATH.
# JavaScript: node, with componentize-qjs (QuickJS) or @bytecodealliance/componentize-js (SpiderMonkey) from npm, in a node_modules
# of the folder of SOURCE or above, or in $NODE_PATH.
# $PYTHON names another Python than the python3 in PATH, for all of these.
# Exit code 3: no compiler; the message names packages to install.
set -euo pipefail

target=wasm32-unknown-unknown
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

main() {
    if (($# != 2)); then
        echo "usage: ${0##*/} CRATE_FOLDER|FILE.c|FILE.zig|FILE.py|FILE.js OUT.wasm" >&2
        exit 2
    fi
    if [[ -f $1/Cargo.toml ]]; then
        build_rust "$1" "$2"
    elif [[ -f $1 && $1 == *.c ]]; then
        build_c "$1" "$2"
    elif [[ -f $1 && $1 == *.zig ]]; then
        build_zig "$1" "$2"
    elif [[ -f $1 && $1 == *.py ]]; then
        build_python "$1" "$2"
    elif [[ -f $1 && $1 == *.js ]]; then
        build_javascript "$1" "$2"
    else
        echo "$1: neither a folder with a Cargo.toml nor a file in C, Zig, Python or JavaScript" >&2
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

# Zig gets the interface from the header for C, and the exports from its implementation.
build_zig() {
    local python=${PYTHON:-python3} target=wasm32-freestanding
    "$python" -m ziglang version >/dev/null 2>&1 ||
        missing "No Zig compiler." \
            "  pip install ziglang   (for the python3 in PATH, or the one that PYTHON names)"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    printf '#define BLIS_POLICY_IMPLEMENTATION\n#include "blis_policy.h"\n' >"$scratch/exports.c"
    "$python" -m ziglang translate-c -target "$target" -I "$here/c" "$here/c/blis_policy.h" >"$scratch/blis_policy.zig"
    "$python" -m ziglang build-exe -target "$target" -mcpu generic+bulk_memory -O ReleaseFast -fstrip -fno-entry --stack 262144 \
        -I "$here/c" -cflags -O3 -fvisibility=hidden -- "$scratch/exports.c" \
        --dep blis_policy "-Mroot=$1" "-Mblis_policy=$scratch/blis_policy.zig" --cache-dir "$scratch/cache" "-femit-bin=$2"
}

# The name in policy.wit of what SOURCE exports, from its line "@kind KIND", "@kind KIND with-events" or "… with-scores".
exports() {
    local kind with='' name known
    read -r kind with < <(sed -n 's/^[[:space:]#*/]*@kind[[:space:]]\{1,\}//p' "$1") || true
    known=$(sed -n 's/^world \(.*\) {$/\1/p' "$here/wit/since-v1.1.0/policy.wit")
    for name in "$kind-policy" "$kind-model"; do
        if grep --quiet --line-regexp -e "$name" <<<"$known"; then
            echo "$name${with:+-$with}"
            return
        fi
    done
    echo "$1: no comment line \`@kind KIND\`, as \`@kind routing\`; behind it \`with-events\` or \`with-scores\` for a policy that exports those too. KIND is" \
        "one of" $(sed -n 's/-\(policy\|model\)$//p' <<<"$known") >&2
    exit 2
}

build_python() {
    local tool name
    tool=$(command -v componentize-py || true)
    if [[ -z $tool || -n ${PYTHON:-} ]]; then
        tool=$(dirname "$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')")/componentize-py
    fi
    if [[ ! -x $tool ]]; then
        missing "No compiler for Python." \
            "  pip install componentize-py   (for the python3 in PATH, or the one that PYTHON names)"
    fi
    name=$(exports "$1")
    # Stubs instead of WASI: the sandbox offers none of it.
    "$tool" --quiet -d "$here/wit/since-v1.1.0" -w "$name" componentize --stub-wasi -p "$(dirname "$1")" -o "$2" \
        "$(basename "$1" .py)"
}

build_javascript() {
    local name wit=$here/wit/since-v1.1.0 tool
    # Without what needs WASI: the sandbox offers none of it.
    if tool=$(npm_tool componentize-qjs "$1"); then
        name=$(exports "$1")
        # Without asynchronous calls, which this host does not make.
        "$tool" --wit "$wit" -n "$name" --stub-wasi --sync --js "$1" -o "$2" >/dev/null
    elif tool=$(npm_tool componentize-js "$1"); then
        name=$(exports "$1")
        "$tool" "$1" --wit "$wit" -n "$name" --disable random stdio clocks http fetch-event --out "$2"
    else
        missing "No compiler for JavaScript. Either of these is enough (in the folder of the policy; node 20 or later):" \
            "  npm install componentize-qjs                    (QuickJS: 1.6 MB)" \
            "  npm install @bytecodealliance/componentize-js   (SpiderMonkey: 12 MB)"
    fi
}

# npm_tool NAME SOURCE: the path of a tool that npm installed in the folder of SOURCE, in one above it, or in $NODE_PATH
npm_tool() {
    local folder
    folder=$(cd "$(dirname "$2")" && pwd)
    while :; do
        if [[ -x $folder/node_modules/.bin/$1 ]]; then
            echo "$folder/node_modules/.bin/$1"
            return
        fi
        if [[ $folder == / ]]; then break; fi
        folder=$(dirname "$folder")
    done
    [[ -n ${NODE_PATH:-} && -x $NODE_PATH/.bin/$1 ]] && echo "$NODE_PATH/.bin/$1"
}

main "$@"
