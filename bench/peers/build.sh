#!/usr/bin/env bash
# build.sh PEER DIR: compiles the peer into DIR/PEER, fetching its jars with Maven the first time, and prints its class path.
set -euo pipefail
PROG=bench/peers/build.sh
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../../scripts/servers/lib.sh
. "$HERE/../../scripts/servers/lib.sh"
[[ $# -eq 2 && -f $HERE/$1/pom.xml ]] || { printf 'usage: %s kstreams|storm|flink DIR\n' "$PROG" >&2; exit 2; }
need_java >&2
jars "bench-$1" "$HERE/$1/pom.xml" >&2
command -v javac >/dev/null || die "javac not found in PATH (a JDK is needed; Debian: apt-get install openjdk-17-jdk-headless)"
rm -rf "${2:?}/$1"
mkdir -p "$2/$1"
if ! javac -nowarn -Xlint:none -encoding UTF-8 -d "$2/$1" -cp "$JARS/*" "$HERE/$1"/*.java >"$2/$1.log" 2>&1; then
  cat "$2/$1.log" >&2
  die "$1 did not compile"
fi
printf '%s\n' "$2/$1:$JARS/*"
