#!/usr/bin/env bash
# A real Apache ZooKeeper on 127.0.0.1 (one node, or an ensemble of three), from Maven jars. See README.md.
set -euo pipefail
PROG=zookeeper.sh
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib.sh
. "$HERE/lib.sh"

usage() {
  cat <<'U'
usage: zookeeper.sh start|stop|status|address|kill|pause|resume|4lw|cli|classpath|clean [options] [-- arguments]
  start       start the node(s); wait until each serves (with three: one leader, two followers)
  stop        SIGTERM, wait until they are gone; data stay
  status      one line per node with its mode; exit 0 if all serve, 3 if not
  address     print host:port of each node, comma-separated
  kill        SIGKILL (a crash); with --node one node, else all
  pause       SIGSTOP (a hang: connections stay open, nothing answers); resume lets it go on
  4lw         send a four-letter word to the node(s): zookeeper.sh 4lw -- mntr
  cli         ZooKeeper's own client: zookeeper.sh cli -- ls /
  classpath   print the class path of the jars
  clean       stop, then remove the data directory
options:
  --port N     first client port (12181), or "auto" for free ones; nodes use N..N+2, quorum N+10..N+12, election N+20..N+22
  --dir D      data, logs, pid files (${TMPDIR:-/tmp}/tridentd-zookeeper-PORT)
  --nodes 1|3  how many (1, or what --dir was made with)
  --node I     only node I (start, stop, kill, 4lw)
  --set K=V    a line for zoo.cfg (at start; may be repeated)
environment: ZK_HEAP (256m), ZK_JVM (more java options), ZK_WAIT seconds to wait for readiness (60),
  ZK_SUPER the password of the digest user "super" (super)
U
}

PORT= DIR= NODES= NODE=
SETS=()
[[ $# -ge 1 ]] || { usage >&2; exit 2; }
CMD=$1; shift
ARGS=()
while (($#)); do
  case $1 in
    --port|--dir|--nodes|--node|--set)
      [[ $# -ge 2 ]] || die "$1 needs a value"
      case $1 in
        --port) PORT=$2;; --dir) DIR=$2;; --nodes) NODES=$2;; --node) NODE=$2;; --set) SETS+=("$2");;
      esac
      shift 2;;
    --) shift; ARGS=("$@"); break;;
    -h|--help) usage; exit 0;;
    *) usage >&2; printf '%s: error: unknown argument %s\n' "$PROG" "$1" >&2; exit 2;;
  esac
done
if [[ ( -z $PORT || $PORT == auto ) && -n $DIR && -s $DIR/port ]]; then PORT=$(<"$DIR/port"); fi
if [[ $PORT == auto ]]; then PORT=$(pick_port 1 2 10 11 12 20 21 22); fi
PORT=${PORT:-12181}
[[ $PORT =~ ^[0-9]+$ && $PORT -ge 1024 && $PORT -le 65500 ]] || die "--port '$PORT' is not a number from 1024 to 65500"
DIR=${DIR:-${TMPDIR:-/tmp}/tridentd-zookeeper-$PORT}
MADE=; if [[ -s $DIR/nodes ]]; then MADE=$(<"$DIR/nodes"); fi
NODES=${NODES:-${MADE:-1}}
[[ $NODES == 1 || $NODES == 3 ]] || die "--nodes must be 1 or 3, not '$NODES'"
[[ -z $NODE || ( $NODE =~ ^[1-3]$ && $NODE -le $NODES ) ]] || die "--node '$NODE' is not one of the $NODES node(s)"
case $CMD in start) mkdir -p "$DIR";; esac
if [[ -d $DIR ]]; then DIR=$(cd "$DIR" && pwd); fi

cport() { echo $((PORT + $1 - 1)); }
qport() { echo $((PORT + 10 + $1 - 1)); }
eport() { echo $((PORT + 20 + $1 - 1)); }
pidf() { echo "$DIR/node-$1/zookeeper.pid"; }
conf_of() { echo "${1%/zookeeper.pid}/zoo.cfg"; }
up() { running "$(pidf "$1")" "$DIR/node-$1/zoo.cfg"; }
nodes() { if [[ -n $NODE ]]; then echo "$NODE"; else seq 1 "$NODES"; fi; }
connect() { local i s=; for ((i = 1; i <= NODES; i++)); do s+=",127.0.0.1:$(cport "$i")"; done; echo "${s:1}"; }
flw() ( # PORT WORD; a subshell, so that a refused connection ends only this
  { exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1; printf '%s' "$2" >&3; timeout 5 cat <&3; } 2>/dev/null
)
# The mode of a node that serves (standalone, leader, follower); nothing while it does not.
mode() { (flw "$(cport "$1")" srvr || true) | sed -n 's/^Mode: //p'; }

write_conf() {
  local i=$1 d="$DIR/node-$1" j
  mkdir -p "$d/data"
  {
    cat <<P
dataDir=$d/data
clientPort=$(cport "$i")
clientPortAddress=127.0.0.1
tickTime=500
initLimit=20
syncLimit=10
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
admin.enableServer=false
4lw.commands.whitelist=*
authProvider.1=org.apache.zookeeper.server.auth.DigestAuthenticationProvider
P
    if [[ $NODES == 3 ]]; then
      for ((j = 1; j <= 3; j++)); do echo "server.$j=127.0.0.1:$(qport "$j"):$(eport "$j")"; done
    fi
    if ((${#SETS[@]})); then printf '%s\n' "${SETS[@]}"; fi
  } >"$d/zoo.cfg"
  echo "$i" >"$d/data/myid"
  cat >"$d/logback.xml" <<P
<configuration>
  <appender name="F" class="ch.qos.logback.core.FileAppender">
    <file>$d/server.log</file>
    <encoder><pattern>%d %-5p [%t] %c{1} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="F"/></root>
</configuration>
P
}

# give_up MESSAGE: end what this start began, then fail.
give_up() {
  local i f=()
  for i in "${todo[@]}"; do f+=("$(pidf "$i")"); done
  if ((${#f[@]})); then end_all 5 "${f[@]}"; fi
  die "$@"
}

start() {
  local i d t0 m now wait=${ZK_WAIT:-60} todo=() super
  if [[ -n $MADE && $MADE != "$NODES" ]]; then die "$DIR was made with $MADE node(s); use another --dir, or clean it first"; fi
  if [[ -s $DIR/port && $(<"$DIR/port") != "$PORT" ]]; then die "$DIR was made for port $(<"$DIR/port"), not $PORT; use another --dir, or clean it first"; fi
  for i in $(nodes); do up "$i" || todo+=("$i"); done
  need_java
  jars "zookeeper-$VERSION" "$HERE/zookeeper-jars/pom.xml"
  for i in "${todo[@]}"; do
    free_port_or_die "$(cport "$i")" "node $i, clients"
    if [[ $NODES == 3 ]]; then
      free_port_or_die "$(qport "$i")" "node $i, quorum"
      free_port_or_die "$(eport "$i")" "node $i, election"
    fi
  done
  echo "$NODES" >"$DIR/nodes"; echo "$PORT" >"$DIR/port"
  # The digest of super:PASSWORD, as DigestAuthenticationProvider makes it: base64(sha1(user:password)).
  super="super:$(printf 'super:%s' "${ZK_SUPER:-super}" | sha1sum | cut -d' ' -f1 | sed 's/../\\x&/g' | tr -d '\n' | xargs -0 printf '%b' | base64)"
  for i in "${todo[@]}"; do
    d="$DIR/node-$i"
    if [[ ! -s $d/zoo.cfg || ${#SETS[@]} -gt 0 ]]; then write_conf "$i"; fi
    # shellcheck disable=SC2086
    spawn "$(pidf "$i")" "$d/stdout.log" java -Xms64m -Xmx"${ZK_HEAP:-256m}" -XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true \
      -Dlogback.configurationFile="$d/logback.xml" -Dzookeeper.DigestAuthenticationProvider.superDigest="$super" \
      ${ZK_JVM:-} -cp "$JARS/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$d/zoo.cfg"
  done
  t0=$SECONDS
  for i in $(nodes); do
    while :; do
      if ! up "$i"; then
        tail -n 15 "$DIR/node-$i/server.log" "$DIR/node-$i/stdout.log" >&2 || true
        give_up "node $i ended while starting (logs in $DIR/node-$i)"
      fi
      m=$(mode "$i")
      [[ -n $m ]] && break
      now=$((SECONDS - t0))
      if ((now >= wait)); then
        if [[ $NODES == 3 && -n $NODE ]]; then give_up "node $i runs but serves nobody after ${wait}s: is there a quorum? (logs in $DIR/node-$i)"; fi
        give_up "node $i not ready after ${wait}s (logs in $DIR/node-$i)"
      fi
      sleep 0.2
    done
  done
  if ((${#todo[@]} == 0)); then say "already running: $(connect)"; else say "ready: $(connect) (ZooKeeper $VERSION, $NODES node(s), dir $DIR)"; fi
}

stop() {
  local i f=()
  [[ -d $DIR ]] || { say "not running ($DIR does not exist)"; return 0; }
  for i in $(nodes); do f+=("$(pidf "$i")"); done
  end_all 15 "${f[@]}"
  say "stopped"
}

status() {
  local i m rc=0
  for i in $(nodes); do
    if up "$i"; then
      m=$(mode "$i")
      say "node $i: pid $(<"$(pidf "$i")") 127.0.0.1:$(cport "$i") ${m:-not serving}"
      [[ -n $m ]] || rc=3
    else say "node $i: down"; rc=3; fi
  done
  return $rc
}

crash() {
  local i j
  for i in $(nodes); do
    up "$i" || { say "node $i: not running"; continue; }
    kill -KILL "$(<"$(pidf "$i")")"
    for ((j = 0; j < 100; j++)); do up "$i" || break; sleep 0.05; done
    rm -f "$(pidf "$i")"
    say "node $i: killed"
  done
}

# signal NAME WORD: send a signal to the node(s) that run.
signal() {
  local i
  for i in $(nodes); do
    up "$i" || die "node $i is not running"
    kill "-$1" "$(<"$(pidf "$i")")"
    say "node $i: $2"
  done
}

VERSION=$(sed -n 's:.*<zookeeper.version>\(.*\)</zookeeper.version>.*:\1:p' "$HERE/zookeeper-jars/pom.xml")
locked() { exec 9>"$DIR/.lock"; flock -w 120 9 || die "another zookeeper.sh holds $DIR/.lock"; "$@"; }
case $CMD in
  start) locked start;;
  stop) if [[ -d $DIR ]]; then locked stop; else stop; fi;;
  status) status;;
  address) connect;;
  pause) signal STOP paused;;
  resume) signal CONT resumed;;
  kill) [[ -d $DIR ]] || die "no $DIR"; locked crash;;
  4lw) for i in $(nodes); do flw "$(cport "$i")" "${ARGS[0]:-ruok}" || die "node $i does not answer on 127.0.0.1:$(cport "$i")"; echo; done;;
  cli) need_java; jars "zookeeper-$VERSION" "$HERE/zookeeper-jars/pom.xml"
    exec java -Xmx128m -XX:TieredStopAtLevel=1 -Dlogback.configurationFile="$HERE/zookeeper-jars/cli-logback.xml" -cp "$JARS/*" \
      org.apache.zookeeper.ZooKeeperMain -server "$(connect)" "${ARGS[@]}";;
  classpath) need_java; jars "zookeeper-$VERSION" "$HERE/zookeeper-jars/pom.xml" >&2; echo "$JARS/*";;
  clean) if [[ -d $DIR ]]; then [[ -s $DIR/nodes ]] || die "$DIR was not made by zookeeper.sh"; NODE=; locked stop; rm -rf "$DIR"; fi;;
  -h|--help|help) usage;;
  *) usage >&2; printf '%s: error: unknown command %s\n' "$PROG" "$CMD" >&2; exit 2;;
esac
