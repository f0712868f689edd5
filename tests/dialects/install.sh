#!/usr/bin/env bash
# Unpack the SGLang releases whose command lines Specsweep speaks, without their dependencies, into .sglang-dialects/
# (about 550 MB; 130 MB are fetched). Only their argument parsers are used. Idempotent.
set -euo pipefail
root=${1:-.sglang-dialects}
again=$(cd "$(dirname "$0")/.." && pwd)/again.sh
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
for release in 0.5.9 0.5.12 0.5.13 0.5.14 0.5.15 0.5.19 0.5.21 0.5.23; do
  [ -e "$root/$release/.unpacked" ] && continue
  echo "Fetching SGLang $release"
  rm -rf "${root:?}/wheels" "${root:?}/$release" # what an interrupted run left
  mkdir -p "$root/wheels"
  "$again" "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$root/wheels" "sglang==$release"
  "$python" -m zipfile -e "$root/wheels/sglang-$release"-*.whl "$root/$release"
  rm "$root/wheels/sglang-$release"-*.whl
  touch "$root/$release/.unpacked"
done
