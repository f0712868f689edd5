"""Run SGLang's Rust client without the seconds that importing its package takes: the extension alone is loaded.

python rust_driver.py EXTENSION.so --backend sglang-oai ...
"""

import importlib.util
import sys

spec = importlib.util.spec_from_file_location("_bench", sys.argv[1])
assert spec is not None
assert spec.loader is not None
extension = importlib.util.module_from_spec(spec)
spec.loader.exec_module(extension)
extension.run_argv(["sglang-bench", *sys.argv[2:]])
