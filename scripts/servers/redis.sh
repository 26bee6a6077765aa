#!/usr/bin/env bash
# A real Redis (or Valkey) on 127.0.0.1. See README.md.
set -euo pipefail
PROG=redis.sh
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib.sh
. "$HERE/lib.sh"

usage() {
  cat <<'U'
usage: redis.sh start|stop|status|address|kill|pause|resume|clean [options]
  start       start the server, wait until it answers PING
  stop        SIGTERM, wait until it is gone; data stay
  status      one line; exit 0 if it is up, 3 if not
  address     print host:port
  kill        SIGKILL (a crash)
  pause       SIGSTOP (a hang: connections stay open, nothing answers); resume lets it go on
  clean       stop, then remove the data directory
options:
  --port N      port (16379), or "auto" for a free one
  --dir D       data, logs, pid file (${TMPDIR:-/tmp}/tridentd-redis-PORT)
  --set K=V     a line for redis.conf (at start; may be repeated)
environment: REDIS_SERVER the program (redis-server or valkey-server in PATH, else fetched with apt-get),
  REDIS_WAIT seconds to wait for readiness (30)
U
}

PORT= DIR=
SETS=()
[[ $# -ge 1 ]] || { usage >&2; exit 2; }
CMD=$1; shift
while (($#)); do
  case $1 in
    --port|--dir|--set)
      [[ $# -ge 2 ]] || die "$1 needs a value"
      case $1 in
        --port) PORT=$2;; --dir) DIR=$2;; --set) SETS+=("${2%%=*} ${2#*=}");;
      esac
      shift 2;;
    -h|--help) usage; exit 0;;
    *) usage >&2; printf '%s: error: unknown argument %s\n' "$PROG" "$1" >&2; exit 2;;
  esac
done
if [[ ( -z $PORT || $PORT == auto ) && -n $DIR && -s $DIR/port ]]; then PORT=$(<"$DIR/port"); fi
if [[ $PORT == auto ]]; then PORT=$(pick_port); fi
PORT=${PORT:-16379}
[[ $PORT =~ ^[0-9]+$ && $PORT -ge 1024 && $PORT -le 65500 ]] || die "--port '$PORT' is not a number from 1024 to 65500"
DIR=${DIR:-${TMPDIR:-/tmp}/tridentd-redis-$PORT}
case $CMD in start) mkdir -p "$DIR";; esac
if [[ -d $DIR ]]; then DIR=$(cd "$DIR" && pwd); fi
PIDF=$DIR/redis.pid
conf_of() { echo "$DIR/redis.conf"; }
up() { running "$PIDF" "$DIR/redis.conf"; }

# find_server leaves the program in $SERVER.
find_server() {
  SERVER=${REDIS_SERVER:-$(command -v redis-server || command -v valkey-server || true)}
  if [[ -n $SERVER ]]; then return 0; fi
  command -v apt-get >/dev/null 2>&1 || die "redis-server not found in PATH; install Redis, or name one with TRIDENTD_TEST_REDIS"
  debs redis redis-server
  SERVER=$DEBS/usr/bin/redis-server
}

ready() {
  local out
  out=$( { exec 3<>"/dev/tcp/127.0.0.1/$PORT" || exit 1; printf 'PING\r\n' >&3; timeout 5 head -c 5 <&3; } 2>/dev/null ) || return 1
  [[ $out == +PONG ]]
}

start() {
  local t0
  if [[ -s $DIR/port && $(<"$DIR/port") != "$PORT" ]]; then die "$DIR was made for port $(<"$DIR/port"), not $PORT; use another --dir, or clean it first"; fi
  if up && ready; then say "already running: $(address)"; return 0; fi
  find_server
  up || free_port_or_die "$PORT" "Redis"
  echo "$PORT" >"$DIR/port"
  mkdir -p "$DIR/data"
  if [[ ! -s $DIR/redis.conf || ${#SETS[@]} -gt 0 ]]; then
    cat >"$DIR/redis.conf" <<P
bind 127.0.0.1
port $PORT
dir $DIR/data
daemonize no
set-proc-title no
appendonly yes
appendfsync always
save ""
P
    if ((${#SETS[@]})); then printf '%s\n' "${SETS[@]}" >>"$DIR/redis.conf"; fi
  fi
  up || spawn "$PIDF" "$DIR/stdout.log" "$SERVER" "$DIR/redis.conf"
  t0=$SECONDS
  until ready; do
    if ((SECONDS - t0 > 2)) && ! up; then tail -n 15 "$DIR/stdout.log" >&2; die "the server ended while starting (log: $DIR/stdout.log)"; fi
    if ((SECONDS - t0 >= ${REDIS_WAIT:-30})); then end_all 5 "$PIDF"; die "not ready after ${REDIS_WAIT:-30}s (log: $DIR/stdout.log)"; fi
    sleep 0.1
  done
  say "ready: $(address) ($("$SERVER" --version | cut -d' ' -f1-3), dir $DIR)"
}

stop() {
  if ! up; then say "not running"; return 0; fi
  end_all 10 "$PIDF"
  say "stopped"
}

# signal NAME WORD: send a signal to the server.
signal() {
  up || die "the server is not running"
  kill "-$1" "$(<"$PIDF")"
  say "$2"
}

crash() {
  local i
  up || { say "not running"; return 0; }
  kill -KILL "$(<"$PIDF")"
  for ((i = 0; i < 100; i++)); do up || break; sleep 0.05; done
  rm -f "$PIDF"
  say "killed"
}

status() {
  if up && ready; then say "pid $(<"$PIDF") $(address)"; else say "down"; return 3; fi
}

address() { echo "127.0.0.1:$PORT"; }

locked() { exec 9>"$DIR/.lock"; flock -w 120 9 || die "another redis.sh holds $DIR/.lock"; "$@"; }
case $CMD in
  start) locked start;;
  stop) if [[ -d $DIR ]]; then locked stop; else stop; fi;;
  status) status;;
  address) address;;
  pause) signal STOP paused;;
  resume) signal CONT resumed;;
  kill) [[ -d $DIR ]] || die "no $DIR"; locked crash;;
  clean) if [[ -d $DIR ]]; then [[ -s $DIR/port ]] || die "$DIR was not made by redis.sh"; locked stop; rm -rf "$DIR"; fi;;
  -h|--help|help) usage;;
  *) usage >&2; printf '%s: error: unknown command %s\n' "$PROG" "$CMD" >&2; exit 2;;
esac
