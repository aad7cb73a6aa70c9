#!/bin/sh
# gpuaas-runtime: the managed runtimes of this machine. They are the platform's; nothing of yours is changed.
set -u
root=/opt/gpuaas/runtimes
env=/etc/gpuaas/runtime.env

usage() {
    cat <<'END'
gpuaas-runtime list                      every runtime that this machine has; * is current
gpuaas-runtime current [RUNTIME]         the current version of each, or of one
gpuaas-runtime info RUNTIME              where it is, its digest, since when it is here
gpuaas-runtime use RUNTIME [-- COMMAND]  a shell in which it is active, or one command
RUNTIME is a name like pytorch, or a name and a version like pytorch:2.3.
To activate one in the shell that you have: . /opt/gpuaas/runtimes/NAME/current/activate.sh
END
}

fail() {
    printf 'gpuaas-runtime: %s\n' "$1" >&2
    exit "${2:-1}"
}

names() { # every name that has a current version
    for link in "$root"/*/current; do
        [ -L "$link" ] && basename "$(dirname "$link")"
    done
}

resolve() { # name and version; `current` is read once, here
    name=${1%%[:@]*}
    version=${1#"$name"}
    version=${version#?}
    case $name in '' | *[!a-z0-9-]*) fail "'$1' is not the name of a runtime" 2 ;; esac
    case $version in *[!a-z0-9.+_-]*) fail "'$version' is not a version" 2 ;; esac
    if [ -z "$version" ]; then
        version=$(readlink "$root/$name/current" 2>/dev/null) ||
            fail "there is no runtime $name here. There is: $(names | tr '\n' ' ')" 3
    fi
    place=$root/$name/$version
    [ -n "$version" ] && [ -f "$place/activate.sh" ] ||
        fail "there is no $name:$version here. See: gpuaas-runtime list" 3
}

list() {
    for place in "$root"/*/*; do
        [ -d "$place" ] && [ ! -L "$place" ] || continue
        name=$(basename "$(dirname "$place")")
        version=$(basename "$place")
        mark=' '
        [ "$(readlink "$root/$name/current" 2>/dev/null)" = "$version" ] && mark='*'
        printf '%s %s:%s\n' "$mark" "$name" "$version"
    done
}

current() {
    for name in $(names); do
        printf '%s:%s\n' "$name" "$(readlink "$root/$name/current")"
    done
}

info() {
    resolve "$1"
    printf 'runtime     %s:%s\nroot        %s\nactivate    . %s/activate.sh\n' "$name" "$version" "$place" "$place"
    key=GPUAAS_RUNTIME_$(printf %s "$name" | tr 'a-z-' 'A-Z_')
    if grep -qx "${key}_VERSION='$version'" "$env" 2>/dev/null; then
        sed -n "s/^${key}_DIGEST='\(.*\)'$/digest      \1/p; s/^${key}_APPLIED_AT='\(.*\)'$/applied at  \1/p" "$env"
    fi
}

use() {
    resolve "$1"
    shift
    [ "${1-}" = -- ] && shift
    set +u
    . "$place/activate.sh"
    [ $# -gt 0 ] && exec "$@"
    [ -t 0 ] && printf '%s:%s is active in this shell; `exit` leaves it.\n' "$name" "$version" >&2
    exec "${SHELL:-/bin/sh}"
}

case ${1-} in
list) list ;;
current) if [ $# -gt 1 ]; then resolve "$2" && printf '%s:%s\n' "$name" "$version"; else current; fi ;;
info) [ $# -eq 2 ] || fail "info needs the name of a runtime" 2; info "$2" ;;
use) [ $# -ge 2 ] || fail "use needs the name of a runtime" 2; shift; use "$@" ;;
help | --help | -h) usage ;;
*) usage >&2; exit 2 ;;
esac
