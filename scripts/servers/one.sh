# Shared by the scripts of servers that are one process; sourced behind lib.sh, not run. Such a script sets PROG and defines usage, up,
# ready, start, stop and address.

# options DEFAULT_PORT MARK ARG...: leaves the command in $CMD and what goes with it in $PORT, $DIR and $SETS (each K=V). MARK is the
# server's part of file names.
options() {
  local default=$1 mark=$2
  shift 2
  PORT= DIR=
  SETS=()
  [[ $# -ge 1 ]] || { usage >&2; exit 2; }
  CMD=$1; shift
  while (($#)); do
    case $1 in
      --port|--dir|--set)
        [[ $# -ge 2 ]] || die "$1 needs a value"
        case $1 in
          --port) PORT=$2;; --dir) DIR=$2;; --set) SETS+=("$2");;
        esac
        shift 2;;
      -h|--help) usage; exit 0;;
      *) usage >&2; printf '%s: error: unknown argument %s\n' "$PROG" "$1" >&2; exit 2;;
    esac
  done
  if [[ ( -z $PORT || $PORT == auto ) && -n $DIR && -s $DIR/port ]]; then PORT=$(<"$DIR/port"); fi
  if [[ $PORT == auto ]]; then PORT=$(pick_port); fi
  PORT=${PORT:-$default}
  [[ $PORT =~ ^[0-9]+$ && $PORT -ge 1024 && $PORT -le 65500 ]] || die "--port '$PORT' is not a number from 1024 to 65500"
  DIR=${DIR:-${TMPDIR:-/tmp}/tridentd-$mark-$PORT}
  case $CMD in start) mkdir -p "$DIR";; esac
  if [[ -d $DIR ]]; then DIR=$(cd "$DIR" && pwd); fi
  PIDF=$DIR/$mark.pid
}

# own_port: the directory is of this port, or new.
own_port() {
  if [[ -s $DIR/port && $(<"$DIR/port") != "$PORT" ]]; then die "$DIR was made for port $(<"$DIR/port"), not $PORT; use another --dir, or clean it first"; fi
}

# await_ready SECONDS: wait until the server, which has been started, is ready.
await_ready() {
  local t0=$SECONDS
  until ready; do
    # Until the first exec is done the process has another command line.
    if ((SECONDS - t0 > 2)) && ! up; then tail -n 15 "$DIR/stdout.log" >&2; die "the server ended while starting (log: $DIR/stdout.log)"; fi
    if ((SECONDS - t0 >= $1)); then end_all 5 "$PIDF"; die "not ready after $1s (log: $DIR/stdout.log)"; fi
    sleep 0.1
  done
}

# signal NAME WORD: send a signal to the server and the processes that it has for connections.
signal() {
  up || die "the server is not running"
  # shellcheck disable=SC2046
  kill "-$1" $(family "$PIDF") 2>/dev/null || true
  say "$2"
}

crash() {
  local i pids
  up || { say "not running"; return 0; }
  pids=$(family "$PIDF")
  # shellcheck disable=SC2086
  kill -KILL $pids 2>/dev/null || true
  for ((i = 0; i < 100; i++)); do
    # shellcheck disable=SC2086
    kill -0 $pids 2>/dev/null || break
    sleep 0.05
  done
  rm -f "$PIDF"
  say "killed"
}

locked() { exec 9>"$DIR/.lock"; flock -w 120 9 || die "another $PROG holds $DIR/.lock"; "$@"; }

# obey: does what $CMD says.
obey() {
  case $CMD in
    start) locked start;;
    stop) if [[ -d $DIR ]]; then locked stop; else stop; fi;;
    status) status;;
    address) address;;
    pause) signal STOP paused;;
    resume) signal CONT resumed;;
    kill) [[ -d $DIR ]] || die "no $DIR"; locked crash;;
    clean) if [[ -d $DIR ]]; then [[ -s $DIR/port ]] || die "$DIR was not made by $PROG"; locked stop; rm -rf "$DIR"; fi;;
    -h|--help|help) usage;;
    *) usage >&2; printf '%s: error: unknown command %s\n' "$PROG" "$CMD" >&2; exit 2;;
  esac
}
