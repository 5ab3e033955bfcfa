#!/bin/sh
# Runs tests against a core that was built with sanitizers: sanitize.sh PYTHON SITE [TESTS...]
# PYTHON is of an environment that has everything else; SITE is the folder with the sanitized
# package. By default the tests of native code run.
set -eu
python=$1 site=$2
shift 2
[ $# -gt 0 ] || set -- tests/runtime

# The interpreter itself is not sanitized, so the runtimes have to be loaded before it; libstdc++,
# because exceptions are intercepted where it is found first.
preload=
for name in libasan.so libubsan.so libstdc++.so.6; do
  preload="$preload $(${CXX:-c++} -print-file-name=$name)"
done
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
base=$("$python" -c 'import sys; print(sys._base_executable)')
export LD_PRELOAD="${preload# }"
export PYTHONPATH="$(cd "$site" && pwd):$packages"
# Leaks are not looked for here: all stacks begin in the interpreter, which never frees much of what
# it has. tests/runtime/test_load.py checks that memory stays flat. Allocations that are too large
# fail as they do elsewhere.
export OPENBLAS_NUM_THREADS=1
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:${UBSAN_OPTIONS:-}"
"$base" -c 'from stridewise.runtime.binding.library import load_core; print("sanitized core:", load_core().__file__)'
# The base interpreter may have plugins of its own, which the tests do not know.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
exec "$base" -m pytest -q -p no:cacheprovider -p _hypothesis_pytestplugin -p xdist.plugin \
  --numprocesses=auto "$@"
