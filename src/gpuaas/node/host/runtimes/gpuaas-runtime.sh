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
RUNTIME is a name like pytorch, which means its current version, or says which one of those that are here:
python:3.11+ml, python@3.11+ml, python-3.11-ml mean its newest revision, python:3.11+ml-r2 that one;
python@3.11.x and python@latest mean the newest without a tag.
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

here() { # every version, as NAME:VERSION
    for place in "$root"/*/*; do
        [ -d "$place" ] && [ ! -L "$place" ] || continue
        place=${place#"$root"/}
        printf '%s:%s\n' "${place%%/*}" "${place#*/}"
    done
}

revisions() { # every version: without its revision and with dashes only, the revision, the id
    here | sed -e h -e 'y/:@+/---/' -e G -e 's/-r\([1-9][0-9]\{0,5\}\)\n/ \1 /' -e t -e 's/\n/ 1 /'
}

latest() { # of those with the highest rank, each version in its newest revision
    best='' seen=' '
    sort -k 1,1r -k 2,2nr | while read -r rank revision id; do
        [ "${best:=$rank}" = "$rank" ] || break
        line=${id%"-r$revision"}
        case $seen in *" $line "*) continue ;; esac
        seen="$seen$line "
        printf '%s\n' "$id"
    done | sort
}

spelled() { # of NAME, or of any where dashes part everything: exactly, or else with dashes; a revision, or the newest
    wanted=$(printf '%s\n' "$2" | tr ':@+' '---')
    revisions | while read -r dashed revision id; do
        case ${1:-"${id%%:*}"} in "${id%%:*}") ;; *) continue ;; esac
        case $2 in "${id%"-r$revision"}-r$revision") rank=4 ;; "${id%"-r$revision"}") rank=3 ;; *) rank=0 ;; esac
        case $rank$wanted in "0$dashed-r$revision") rank=2 ;; "0$dashed") rank=1 ;; esac
        [ $rank -eq 0 ] || printf '%s %s %s\n' "$rank" "$revision" "$id"
    done | latest
}

order() { # a rank that sorts 3.9 before 3.11, and what is no number after numbers
    rest=$1. key=''
    while [ -n "$rest" ]; do
        part=${rest%%.*} rest=${rest#*.}
        case $part in
        '' | *[!0-9]*) key=$key,1$part ;;
        *) part=00000000000000000000$part && key=$key,0${part#"${part%????????????????????}"} ;;
        esac
    done
    printf '%s\n' "$key"
}

newest() { # of NAME, with a version that begins with these parts, without a tag
    revisions | while read -r dashed revision id; do
        version=${id%"-r$revision"} && version=${version#*:}
        [ "${id%%:*}" = "$1" ] || continue
        case $version in *[!a-z0-9.]*) continue ;; esac
        case $version. in "$2"*) printf '%s %s %s\n' "$(order "$version")" "$revision" "$id" ;; esac
    done | latest
}

meant() { # the rules of the platform's catalog, for what is here
    export LC_ALL=C
    case $1 in '' | [!a-zA-Z0-9]* | *[!a-zA-Z0-9.+:@_-]*) return 2 ;; esac
    case $1 in
    *:*) name=${1%%:*} part=${1#*:} ;;
    *@*) name=${1%%@*} part=${1#*@} ;;
    *) spelled '' "$1" && return ;;
    esac
    found=$(spelled "$name" "$name:$part")
    case $found,$part in
    ,latest) newest "$name" '' ;;
    ,*.x) newest "$name" "${part%x}" ;;
    ,*) ;;
    *) printf '%s\n' "$found" ;;
    esac
}

nearest() { # the versions of a bundle with which it begins, or all that there is
    near=$(here | while read -r each; do
        case $1 in "${each%%:*}"*) printf '%s ' "$each" ;; esac
    done)
    [ -n "$near" ] && printf 'Nearest: %s' "$near" || printf 'There is: %s' "$(here | tr '\n' ' ')"
}

resolve() { # name and version; `current` is read once, here
    found=$(meant "$1") || fail "'$1' is not the name of a runtime" 2
    if [ -z "$found" ] && current=$(readlink "$root/$1/current" 2>/dev/null); then
        found=$1:$current
    fi
    [ -n "$found" ] || fail "there is no runtime $1 here. $(nearest "$1")" 3
    [ "$(printf '%s\n' "$found" | wc -l)" -eq 1 ] || fail "$1 can mean several: $(printf %s "$found" | tr '\n' ' ')" 2
    name=${found%%:*} version=${found#*:}
    place=$root/$name/$version
    [ -f "$place/activate.sh" ] || fail "$name:$version cannot be activated here" 3
}

list() {
    here | while IFS=: read -r name version; do
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
