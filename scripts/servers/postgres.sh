#!/usr/bin/env bash
# A real PostgreSQL on 127.0.0.1. See README.md.
set -euo pipefail
PROG=postgres.sh
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib.sh
. "$HERE/lib.sh"
# shellcheck source=one.sh
. "$HERE/one.sh"

usage() {
  cat <<'U'
usage: postgres.sh start|stop|status|address|kill|pause|resume|clean [options]
  start       start the server, wait until it takes connections
  stop        a fast shutdown: clients are sent away; data stay
  status      one line; exit 0 if it is up, 3 if not
  address     print the URL of the database, with the password, which is "tridentd"
  kill        SIGKILL (a crash)
  pause       SIGSTOP (a hang: connections stay open, nothing answers); resume lets it go on
  clean       stop, then remove the data directory
options:
  --port N      port (15432), or "auto" for a free one
  --dir D       data, logs, pid file (${TMPDIR:-/tmp}/tridentd-postgres-PORT)
  --set K=V     a setting of the server (at start; may be repeated)
environment: PG_BIN where postgres and initdb lie (PATH, /usr/lib/postgresql/*/bin, else fetched with apt-get),
  PG_USER whom it runs as if root calls (postgres, else nobody), PG_WAIT seconds to wait for readiness (60)
U
}

options 15432 postgres "$@"
conf_of() { echo "$DIR/data"; }
up() { running "$PIDF" "$DIR/data"; }

# find_bin leaves the folder of the server's programs in $BIN.
find_bin() {
  local d
  for d in ${PG_BIN:+"$PG_BIN"} "$(dirname "$(readlink -f "$(command -v postgres || echo /none/postgres)")")" $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
    if [[ -x $d/postgres && -x $d/initdb && -x $d/pg_isready ]]; then BIN=$d; return 0; fi
  done
  command -v apt-get >/dev/null 2>&1 || die "postgres and initdb not found in PATH or /usr/lib/postgresql; install PostgreSQL, or name one with TRIDENTD_TEST_POSTGRES"
  debs postgres postgresql
  for d in "$DEBS"/usr/lib/postgresql/*/bin; do BIN=$d; done
  [[ -x $BIN/initdb ]] || die "Debian's postgresql has no initdb in $DEBS"
}

# as_user leaves in $AS what puts a command under a user that isn't root, for whom PostgreSQL refuses to run.
as_user() {
  AS=()
  [[ $(id -u) == 0 ]] || return 0
  local user=${PG_USER:-}
  if [[ -z $user ]]; then user=nobody; if id -u postgres >/dev/null 2>&1; then user=postgres; fi; fi
  command -v setpriv >/dev/null 2>&1 || die "setpriv not found in PATH (Debian: apt-get install util-linux)"
  AS=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
  # Folders above may be root's alone; passing through them is all that is allowed beyond the user's own rights.
  if "${AS[@]}" --inh-caps=+dac_read_search --ambient-caps=+dac_read_search true 2>/dev/null; then
    AS+=(--inh-caps=+dac_read_search --ambient-caps=+dac_read_search)
  fi
  chown "$user" "$DIR/data" "$DIR/stdout.log" "$DIR/password"
}

ready() { "$BIN/pg_isready" -q -h 127.0.0.1 -p "$PORT"; }

start() {
  own_port
  find_bin
  if up && ready; then say "already running: $(address)"; return 0; fi
  up || free_port_or_die "$PORT" "PostgreSQL"
  echo "$PORT" >"$DIR/port"
  mkdir -p -m 700 "$DIR/data"
  touch "$DIR/stdout.log"
  echo tridentd >"$DIR/password"
  as_user
  if [[ ! -s $DIR/data/PG_VERSION ]]; then
    (cd / && "${AS[@]}" "$BIN/initdb" -D "$DIR/data" -U tridentd --pwfile="$DIR/password" -A scram-sha-256 -E UTF8 --locale=C -N) >"$DIR/initdb.log" 2>&1 ||
      { tail -n 5 "$DIR/initdb.log" >&2; die "initdb failed (log: $DIR/initdb.log)"; }
  fi
  if ! up; then
    local sets=() k
    for k in "${SETS[@]}"; do sets+=(-c "$k"); done
    cd /
    spawn "$PIDF" "$DIR/stdout.log" "${AS[@]}" "$BIN/postgres" -D "$DIR/data" -p "$PORT" -c listen_addresses=127.0.0.1 \
      -c unix_socket_directories= -c max_connections=200 -c shared_buffers=64MB -c timezone=UTC -c log_timezone=UTC "${sets[@]}"
  fi
  await_ready "${PG_WAIT:-60}"
  say "ready: 127.0.0.1:$PORT ($("$BIN/postgres" --version), dir $DIR)"
}

stop() {
  if ! up; then say "not running"; return 0; fi
  # TERM would wait for the clients to leave.
  kill -INT "$(<"$PIDF")" 2>/dev/null || true
  # shellcheck disable=SC2046
  kill -CONT $(family "$PIDF") 2>/dev/null || true
  end_all 15 "$PIDF"
  say "stopped"
}

status() {
  if up && port_open "$PORT"; then say "pid $(<"$PIDF") 127.0.0.1:$PORT"; else say "down"; return 3; fi
}

address() { echo "postgres://tridentd:tridentd@127.0.0.1:$PORT/postgres?sslmode=disable"; }

obey
