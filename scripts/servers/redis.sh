#!/usr/bin/env bash
# A real Redis (or Valkey) on 127.0.0.1. See README.md.
set -euo pipefail
PROG=redis.sh
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib.sh
. "$HERE/lib.sh"
# shellcheck source=one.sh
. "$HERE/one.sh"

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

options 16379 redis "$@"
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
  own_port
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
    local k
    for k in "${SETS[@]}"; do printf '%s %s\n' "${k%%=*}" "${k#*=}" >>"$DIR/redis.conf"; done
  fi
  up || spawn "$PIDF" "$DIR/stdout.log" "$SERVER" "$DIR/redis.conf"
  await_ready "${REDIS_WAIT:-30}"
  say "ready: $(address) ($("$SERVER" --version | cut -d' ' -f1-3), dir $DIR)"
}

stop() {
  if ! up; then say "not running"; return 0; fi
  end_all 10 "$PIDF"
  say "stopped"
}

status() {
  if up && ready; then say "pid $(<"$PIDF") $(address)"; else say "down"; return 3; fi
}

address() { echo "127.0.0.1:$PORT"; }

obey
