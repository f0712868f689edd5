#!/usr/bin/env bash
# Install SGLang 0.5.23 for CPU into .sglang-cpu/ (about 2.7 GB) and make two tiny random models. Idempotent.
# Torch must be the CPU build of 2.13.0: from where pip is told to look (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-.sglang-cpu}
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
stamp="$root/.installed"
if [ ! -e "$stamp" ] || [ "$here/requirements.txt" -nt "$stamp" ]; then
  echo "Installing SGLang for CPU into $root (a few minutes)"
  mkdir -p "$root"
  [ -e "$stamp" ] || rm -rf "$root/venv" # what an interrupted run left may lack files that pip takes for installed
  "$python" -m venv "$root/venv"
  "$here/../again.sh" "$root/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt"
  touch "$stamp"
fi
for model in "target --layers 2" "draft --layers 1" "eagle --eagle-head"; do
  name=${model%% *}
  if [ ! -e "$root/models/$name/config.json" ]; then
    # shellcheck disable=SC2086 # the words after the name are options
    "$root/venv/bin/python" "$here/make_tiny_model.py" "$root/making/$name" ${model#* }
    mkdir -p "$root/models"
    rm -rf "${root:?}/models/$name"
    mv "$root/making/$name" "$root/models/$name" # a model is there whole or not at all
  fi
done
