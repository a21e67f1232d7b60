#!/usr/bin/env bash
# Lints, types and tests of the Python package, with the real search tools from PyPI, in target/python/venv.
#
#     BLIS_BINARY=target/debug/blis sdk/python/test.sh [ARGUMENT OF PYTEST…]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

if [[ -z ${BLIS_BINARY:-} ]]; then
    echo 'BLIS_BINARY must name the program: cargo build, then BLIS_BINARY=target/debug/blis' >&2
    exit 2
fi
BLIS_BINARY=$(realpath "$BLIS_BINARY")
export BLIS_BINARY

# The tools at the versions that the adapters are written for; they need Python 3.10 to 3.13.
requirements=(
    openevolve==0.4.0 gepa==0.1.4 shinka-evolve==0.0.7 skydiscover==0.1.0 'ray>=2.40,<3'
    'mypy>=2,<3' 'pytest>=9,<10' 'ruff>=0.17,<0.18' 'types-PyYAML' 'maturin>=1.9,<2'
    # Data frames, and what runs the notebooks of examples/notebooks.
    'pandas>=2.2,<4' 'polars>=1,<3' 'nbclient>=0.10,<1' 'ipykernel>=7,<8'
)
venv=$root/target/python/venv
python=$venv/bin/python
installed=$venv/requirements
if [[ ! -x $python || $(cat "$installed" 2>/dev/null) != "${requirements[*]}" ]]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$python" -m pip install --quiet --disable-pip-version-check "${requirements[@]}"
    # The package as it lies here: what is installed would have to be built, and installed again after every change.
    echo "$here/src" >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/blis-src.pth"
    printf '%s' "${requirements[*]}" >"$installed"
fi

cd "$here"
export PYTHONDONTWRITEBYTECODE=1
"$venv/bin/ruff" check --no-cache . ../dist.py
"$venv/bin/ruff" format --no-cache --check . ../dist.py
"$venv/bin/mypy" --cache-dir "$root/target/python/mypy"
"$python" -m pytest -p no:cacheprovider "$@"
# Whole projects, typed from their READMEs: minutes, and only with all other tests.
if (($# == 0)); then
    "$python" -m pytest -p no:cacheprovider -m readme
fi
