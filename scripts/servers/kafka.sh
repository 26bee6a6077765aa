#!/usr/bin/env bash
# A real Apache Kafka (KRaft, combined broker+controller) on 127.0.0.1, from Maven jars. See README.md.
set -euo pipefail
PROG=kafka.sh
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib.sh
. "$HERE/lib.sh"

usage() {
  cat <<'U'
usage: kafka.sh start|stop|status|address|kill|pause|resume|tool|classpath|clean [options] [-- tool arguments]
  start       start the broker(s), wait until a metadata request sees all of them
  stop        SIGTERM to the broker(s), wait until they are gone; data stay
  status      one line per broker; exit 0 if all are up, 3 if not
  address     print host:port of each broker, comma-separated
  kill        SIGKILL (a crash); with --node one broker, else all
  pause       SIGSTOP (a hang: connections stay open, nothing answers); resume lets it go on
  tool        run one of Kafka's own tools: kafka.sh tool topics|consumer-groups|console-consumer|
              console-producer|configs|get-offsets|transactions|producer-perf|consumer-perf|features|CLASS -- ARGS
              (--bootstrap-server is added for the named ones)
  classpath   print the class path of the jars
  clean       stop, then remove the data directory
options:
  --port N      first broker port (19092), or "auto" for free ones; brokers use N..N+2, controllers N+10..N+12
  --dir D       data, logs, pid files (${TMPDIR:-/tmp}/tridentd-kafka-PORT)
  --brokers 1|3 how many (1, or what --dir was made with)
  --node I      only broker I (start, stop, kill)
  --set K=V     a line for server.properties (at start; may be repeated)
environment: KAFKA_HEAP (1g with one broker, 512m with three), KAFKA_JVM (more java options),
  KAFKA_WAIT seconds to wait for readiness (60)
U
}

PORT= DIR= BROKERS= NODE=
SETS=()
[[ $# -ge 1 ]] || { usage >&2; exit 2; }
CMD=$1; shift
TOOL=
if [[ $CMD == tool ]]; then [[ $# -ge 1 ]] || { usage >&2; exit 2; }; TOOL=$1; shift; fi
ARGS=()
while (($#)); do
  case $1 in
    --port|--dir|--brokers|--node|--set)
      [[ $# -ge 2 ]] || die "$1 needs a value"
      case $1 in
        --port) PORT=$2;; --dir) DIR=$2;; --brokers) BROKERS=$2;; --node) NODE=$2;; --set) SETS+=("$2");;
      esac
      shift 2;;
    --) shift; ARGS=("$@"); break;;
    -h|--help) usage; exit 0;;
    *) usage >&2; printf '%s: error: unknown argument %s\n' "$PROG" "$1" >&2; exit 2;;
  esac
done
if [[ ( -z $PORT || $PORT == auto ) && -n $DIR && -s $DIR/port ]]; then PORT=$(<"$DIR/port"); fi
if [[ $PORT == auto ]]; then PORT=$(pick_port 1 2 10 11 12); fi
PORT=${PORT:-19092}
[[ $PORT =~ ^[0-9]+$ && $PORT -ge 1024 && $PORT -le 65500 ]] || die "--port '$PORT' is not a number from 1024 to 65500"
DIR=${DIR:-${TMPDIR:-/tmp}/tridentd-kafka-$PORT}
MADE=; if [[ -s $DIR/brokers ]]; then MADE=$(<"$DIR/brokers"); fi
BROKERS=${BROKERS:-${MADE:-1}}
[[ $BROKERS == 1 || $BROKERS == 3 ]] || die "--brokers must be 1 or 3, not '$BROKERS'"
[[ -z $NODE || ( $NODE =~ ^[1-3]$ && $NODE -le $BROKERS ) ]] || die "--node '$NODE' is not one of the $BROKERS broker(s)"
case $CMD in start) mkdir -p "$DIR";; esac
if [[ -d $DIR ]]; then DIR=$(cd "$DIR" && pwd); fi

bport() { echo $((PORT + $1 - 1)); }
cport() { echo $((PORT + 10 + $1 - 1)); }
pidf() { echo "$DIR/node-$1/kafka.pid"; }
conf_of() { echo "${1%/kafka.pid}/server.properties"; }
up() { running "$(pidf "$1")" "$DIR/node-$1/server.properties"; }
nodes() { if [[ -n $NODE ]]; then echo "$NODE"; else seq 1 "$BROKERS"; fi; }
bootstrap() { local i s=; for ((i = 1; i <= BROKERS; i++)); do s+=",127.0.0.1:$(bport "$i")"; done; echo "${s:1}"; }

# How many brokers a Metadata (v1) request to port $1 sees; nothing if it can't be asked.
# The reply starts with: size(4) correlation(4) broker-count(4).
brokers_seen() {
  local out
  out=$( { exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
    printf '\x00\x00\x00\x11\x00\x03\x00\x01\x00\x00\x00\x07\x00\x03t7d\x00\x00\x00\x00' >&3
    timeout 5 head -c 12 <&3 | od -An -v -tu1 | tr -s ' \n' ' '; } 2>/dev/null ) || return 0
  # shellcheck disable=SC2086
  set -- $out
  [[ $# -eq 12 && $8 -eq 7 ]] || return 0
  echo $((($9 << 24) | (${10} << 16) | (${11} << 8) | ${12}))
}

write_conf() {
  local i=$1 d="$DIR/node-$1" j voters= min=1
  [[ $BROKERS == 3 ]] && min=2
  for ((j = 1; j <= BROKERS; j++)); do voters+=",$j@127.0.0.1:$(cport "$j")"; done
  mkdir -p "$d"
  cat >"$d/server.properties" <<P
process.roles=broker,controller
node.id=$i
controller.quorum.voters=${voters:1}
listeners=PLAINTEXT://127.0.0.1:$(bport "$i"),CONTROLLER://127.0.0.1:$(cport "$i")
advertised.listeners=PLAINTEXT://127.0.0.1:$(bport "$i")
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$d/data
num.partitions=4
default.replication.factor=$BROKERS
min.insync.replicas=$min
auto.create.topics.enable=false
offsets.topic.num.partitions=8
offsets.topic.replication.factor=$BROKERS
transaction.state.log.num.partitions=8
transaction.state.log.replication.factor=$BROKERS
transaction.state.log.min.isr=$min
share.coordinator.state.topic.num.partitions=2
share.coordinator.state.topic.replication.factor=$BROKERS
share.coordinator.state.topic.min.isr=$min
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
transaction.max.timeout.ms=900000
num.network.threads=2
num.io.threads=4
P
  if ((${#SETS[@]})); then printf '%s\n' "${SETS[@]}" >>"$d/server.properties"; fi
  cat >"$d/log4j2.properties" <<P
appender.f.type=File
appender.f.name=f
appender.f.fileName=$d/server.log
appender.f.layout.type=PatternLayout
appender.f.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.f.ref=f
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
  local i d id t0 heap=${KAFKA_HEAP:-} wait=${KAFKA_WAIT:-60} todo=() seen now
  if [[ -n $MADE && $MADE != "$BROKERS" ]]; then die "$DIR was made with $MADE broker(s); use another --dir, or clean it first"; fi
  if [[ -s $DIR/port && $(<"$DIR/port") != "$PORT" ]]; then die "$DIR was made for port $(<"$DIR/port"), not $PORT; use another --dir, or clean it first"; fi
  for i in $(nodes); do up "$i" || todo+=("$i"); done
  if ((${#todo[@]} == 0)); then
    if [[ $(brokers_seen "$(bport "${NODE:-1}")") == "$BROKERS" || -n $NODE ]]; then say "already running: $(bootstrap)"; return 0; fi
  fi
  need_java
  jars "kafka-$VERSION" "$HERE/kafka-jars/pom.xml"
  for i in "${todo[@]}"; do
    free_port_or_die "$(bport "$i")" "broker $i"
    free_port_or_die "$(cport "$i")" "controller $i"
  done
  if [[ -z $heap ]]; then if [[ $BROKERS == 3 ]]; then heap=512m; else heap=1g; fi; fi
  echo "$BROKERS" >"$DIR/brokers"; echo "$PORT" >"$DIR/port"
  if [[ ! -s $DIR/cluster.id ]]; then
    head -c 16 /dev/urandom | base64 | tr '+/' 'AB' | tr -d '=\n' >"$DIR/cluster.id"
  fi
  id=$(<"$DIR/cluster.id")
  for i in "${todo[@]}"; do
    d="$DIR/node-$i"
    if [[ ! -s $d/server.properties || ${#SETS[@]} -gt 0 ]]; then write_conf "$i"; fi
    if [[ ! -s $d/data/meta.properties ]]; then
      java -Xmx128m -XX:TieredStopAtLevel=1 -Xshare:auto -Dlog4j2.configurationFile="$d/log4j2.properties" -cp "$JARS/*" \
        kafka.tools.StorageTool format -t "$id" -c "$d/server.properties" --ignore-formatted >"$d/format.log" 2>&1 ||
        { grep -m 3 -E 'Exception|rror' "$d/format.log" >&2 || tail -n 5 "$d/format.log" >&2; die "formatting $d/data failed (log: $d/format.log)"; }
    fi
  done
  for i in "${todo[@]}"; do
    d="$DIR/node-$i"
    # shellcheck disable=SC2086
    spawn "$(pidf "$i")" "$d/stdout.log" java -Xms256m -Xmx"$heap" -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
      -XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true -Dlog4j2.configurationFile="$d/log4j2.properties" \
      ${KAFKA_JVM:-} -cp "$JARS/*" kafka.Kafka "$d/server.properties"
  done
  t0=$SECONDS
  for i in "${todo[@]}"; do
    while :; do
      if ! up "$i"; then
        tail -n 15 "$DIR/node-$i/server.log" "$DIR/node-$i/stdout.log" >&2 || true
        give_up "broker $i ended while starting (logs in $DIR/node-$i)"
      fi
      seen=$(brokers_seen "$(bport "$i")")
      if [[ -n $seen ]]; then
        # one broker asked for by --node: enough that it answers; the whole set: all must be seen
        if [[ -n $NODE && $seen -ge 1 ]] || [[ $seen == "$BROKERS" ]]; then break; fi
      fi
      now=$((SECONDS - t0))
      ((now < wait)) || give_up "broker $i not ready after ${wait}s: it sees ${seen:-no} broker(s) (logs in $DIR/node-$i)"
      sleep 0.2
    done
  done
  say "ready: $(bootstrap) (Kafka $VERSION, $BROKERS broker(s), dir $DIR)"
}

stop() {
  local i f=() live=0 secs=30
  [[ -d $DIR ]] || { say "not running ($DIR does not exist)"; return 0; }
  for ((i = 1; i <= BROKERS; i++)); do if up "$i"; then live=$((live + 1)); fi; done
  # without a quorum of controllers a broker's orderly end waits for minutes
  if ((live * 2 <= BROKERS)); then secs=3; fi
  for i in $(nodes); do f+=("$(pidf "$i")"); done
  end_all "$secs" "${f[@]}"
  say "stopped"
}

status() {
  local i rc=0
  for i in $(nodes); do
    if up "$i"; then
      local seen; seen=$(brokers_seen "$(bport "$i")")
      say "broker $i: pid $(<"$(pidf "$i")") 127.0.0.1:$(bport "$i") sees ${seen:-no} broker(s)"
      [[ -n $seen ]] || rc=3
    else say "broker $i: down"; rc=3; fi
  done
  return $rc
}

crash() {
  local i j
  for i in $(nodes); do
    up "$i" || { say "broker $i: not running"; continue; }
    kill -KILL "$(<"$(pidf "$i")")"
    for ((j = 0; j < 100; j++)); do up "$i" || break; sleep 0.05; done
    rm -f "$(pidf "$i")"
    say "broker $i: killed"
  done
}

# signal NAME WORD: send a signal to the broker(s) that run.
signal() {
  local i
  for i in $(nodes); do
    up "$i" || die "broker $i is not running"
    kill "-$1" "$(<"$(pidf "$i")")"
    say "broker $i: $2"
  done
}

tool() {
  local class boot=(--bootstrap-server "$(bootstrap)")
  need_java; jars "kafka-$VERSION" "$HERE/kafka-jars/pom.xml"
  case $TOOL in
    topics) class=org.apache.kafka.tools.TopicCommand;;
    consumer-groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;;
    console-consumer) class=org.apache.kafka.tools.consumer.ConsoleConsumer;;
    console-producer) class=org.apache.kafka.tools.ConsoleProducer;;
    configs) class=org.apache.kafka.tools.ConfigCommand;;
    get-offsets) class=org.apache.kafka.tools.GetOffsetShell;;
    transactions) class=org.apache.kafka.tools.TransactionsCommand;;
    features) class=org.apache.kafka.tools.FeatureCommand;;
    producer-perf) class=org.apache.kafka.tools.ProducerPerformance;;
    consumer-perf) class=org.apache.kafka.tools.ConsumerPerformance;;
    *.*) class=$TOOL; boot=();;
    *) usage >&2; die "unknown tool '$TOOL'";;
  esac
  exec java -Xmx256m -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile="$HERE/kafka-jars/tools-log4j2.properties" -cp "$JARS/*" "$class" "${boot[@]}" "${ARGS[@]}"
}

VERSION=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$HERE/kafka-jars/pom.xml")
locked() { exec 9>"$DIR/.lock"; flock -w 120 9 || die "another kafka.sh holds $DIR/.lock"; "$@"; }
case $CMD in
  start) locked start;;
  stop) if [[ -d $DIR ]]; then locked stop; else stop; fi;;
  status) status;;
  address) bootstrap;;
  pause) signal STOP paused;;
  resume) signal CONT resumed;;
  kill) [[ -d $DIR ]] || die "no $DIR"; locked crash;;
  tool) tool;;
  classpath) need_java; jars "kafka-$VERSION" "$HERE/kafka-jars/pom.xml" >&2; echo "$JARS/*";;
  clean) if [[ -d $DIR ]]; then [[ -s $DIR/cluster.id ]] || die "$DIR was not made by kafka.sh"; NODE=; locked stop; rm -rf "$DIR"; fi;;
  -h|--help|help) usage;;
  *) usage >&2; printf '%s: error: unknown command %s\n' "$PROG" "$CMD" >&2; exit 2;;
esac
