#!/bin/sh
# Builds managed runtimes on this machine and publishes them on the server. Nothing is installed on the host, and
# nothing has to be restarted.
#
#   deploy_runtimes.sh --all                      everything that public registries can give
#   deploy_runtimes.sh --python-3.11-ml           one runtime
#   deploy_runtimes.sh --python-all --node-18     families and runtimes
#
# Every name of `gpuaas runtime list` is a flag, every bundle a family (--java-all). Whatever is unknown is refused
# before any work. Needs a signed-in operator: `gpuaas login`.
set -eu
here=$(dirname -- "$(readlink -f -- "$0")")
gpuaas=$here/../.venv/bin/gpuaas
[ -x "$gpuaas" ] || gpuaas=$(command -v gpuaas) || {
    echo "gpuaas is not installed: run \`make setup\`, or \`pip install gpuaas\`." >&2
    exit 1
}
if [ $# -eq 0 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
exec "$gpuaas" runtime deploy "$@"
