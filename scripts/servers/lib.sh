# Shared by the scripts beside it; sourced, not run.

say() { printf '%s: %s\n' "$PROG" "$*"; }
die() { printf '%s: error: %s\n' "$PROG" "$*" >&2; exit 1; }

need_java() {
  command -v java >/dev/null 2>&1 || die "java not found in PATH (Java 17 or newer is needed; Debian: apt-get install openjdk-17-jre-headless)"
  local v
  v=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1) || true
  [[ -n $v && $v -ge 17 ]] || die "java is version '${v:-unknown}', 17 or newer is needed"
}

# jars NAME POM: leaves the jars of POM in $JARS, asking Maven only when they are not cached yet.
jars() {
  local name=$1 pom=$2 cache tmp sum
  cache="${XDG_CACHE_HOME:-$HOME/.cache}/tridentd/$name"
  JARS="$cache/lib"
  sum=$(sha256sum <"$pom" | cut -d' ' -f1)
  [[ -f $cache/complete && $(<"$cache/complete") == "$sum" ]] && return 0
  command -v mvn >/dev/null 2>&1 || die "mvn not found in PATH, and $cache holds no jars yet (Debian: apt-get install maven)"
  mkdir -p "$cache"
  exec 8>"$cache/lock"
  flock 8
  if [[ -f $cache/complete && $(<"$cache/complete") == "$sum" ]]; then exec 8>&-; return 0; fi
  say "fetching the jars of $name with Maven (once)"
  tmp="$cache/lib.new.$$"
  rm -rf "$tmp" "$cache/complete"
  if ! mvn -q -B -f "$pom" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$tmp" >"$cache/mvn.log" 2>&1; then
    tail -n 20 "$cache/mvn.log" >&2
    die "Maven could not fetch the jars of $name (log: $cache/mvn.log)"
  fi
  rm -rf "$JARS"
  mv "$tmp" "$JARS"
  echo "$sum" >"$cache/complete"
  exec 8>&-
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port_or_die() { ! port_open "$1" || die "port $1 on 127.0.0.1 is taken by another process ($2); choose another with --port"; }

# pick_port OFFSET...: a port P of which 127.0.0.1:P and each P+OFFSET are free at the moment. It lies below the range
# from which Linux takes ports for outgoing connections, so that none of these gets in the way before it is bound.
pick_port() {
  local try p o
  for ((try = 0; try < 200; try++)); do
    p=$((12000 + RANDOM % 18000))
    port_open "$p" && continue
    for o in "$@"; do port_open $((p + o)) && continue 2; done
    echo "$p"
    return 0
  done
  die "no free port found on 127.0.0.1"
}

# running PIDFILE MARK: true if the process in PIDFILE lives and is ours (MARK is on its command line).
running() {
  local pid
  [[ -s $1 ]] || return 1
  pid=$(<"$1")
  [[ $pid =~ ^[0-9]+$ && -r /proc/$pid/cmdline ]] || return 1
  tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -- "$2"
}

# spawn PIDFILE LOG COMMAND...: a daemon in its own session, its pid in PIDFILE.
spawn() {
  local pidfile=$1 log=$2 i
  shift 2
  rm -f "$pidfile"
  setsid bash -c 'echo $$ >"$0.tmp" && mv "$0.tmp" "$0" && exec "$@"' "$pidfile" "$@" </dev/null >>"$log" 2>&1 8>&- 9>&- &
  for ((i = 0; i < 100; i++)); do [[ -s $pidfile ]] && return 0; sleep 0.05; done
  die "could not start: $1"
}

# end_all SECONDS PIDFILE...: TERM to all at once, then KILL to whatever is left after SECONDS.
# The mark of a pid file is the configuration path beside it (see conf_of in the caller).
end_all() {
  local secs=$1 f pid i left
  shift
  for f in "$@"; do
    running "$f" "$(conf_of "$f")" || { rm -f "$f"; continue; }
    kill -TERM "$(<"$f")" 2>/dev/null || true
    kill -CONT "$(<"$f")" 2>/dev/null || true # one that was paused would not see the TERM
  done
  for ((i = 0; i < secs * 10; i++)); do
    left=0
    for f in "$@"; do running "$f" "$(conf_of "$f")" && left=1; done
    ((left)) || break
    sleep 0.1
  done
  for f in "$@"; do
    if running "$f" "$(conf_of "$f")"; then
      pid=$(<"$f")
      say "pid $pid did not end within ${secs}s of SIGTERM: SIGKILL"
      kill -KILL "$pid" 2>/dev/null || true
      for ((i = 0; i < 50; i++)); do running "$f" "$(conf_of "$f")" || break; sleep 0.1; done
    fi
    rm -f "$f"
  done
}

# debs NAME PACKAGE...: unpacks Debian packages, and what they need that isn't installed, into the cache; nothing is installed. Leaves
# the folder in $DEBS, and the way to its libraries in LD_LIBRARY_PATH.
debs() {
  local name=$1 cache need lib
  shift
  cache="${XDG_CACHE_HOME:-$HOME/.cache}/tridentd/$name"
  DEBS="$cache/root"
  mkdir -p "$cache"
  exec 8>"$cache/lock"
  flock 8
  if [[ ! -f $cache/complete ]]; then
    say "fetching Debian's $* (once)"
    rm -rf "$cache/new" "$DEBS"
    mkdir -p "$cache/new/debs"
    need=$(apt-get install -s --no-install-recommends "$@" 2>"$cache/apt.log" | awk '/^Inst/ {print $2}') && [[ -n $need ]] &&
      # shellcheck disable=SC2086
      (cd "$cache/new/debs" && apt-get download $need) >>"$cache/apt.log" 2>&1 &&
      (cd "$cache/new" && for d in debs/*.deb; do dpkg-deb -x "$d" . || exit 1; done) >>"$cache/apt.log" 2>&1 ||
      { tail -n 3 "$cache/apt.log" >&2; die "apt-get could not fetch $* (log: $cache/apt.log); try apt-get update first, or install it"; }
    rm -rf "$cache/new/debs"
    mv "$cache/new" "$DEBS"
    touch "$cache/complete"
  fi
  exec 8>&-
  for lib in "$DEBS"/usr/lib/*-linux-gnu*; do
    if [[ -d $lib ]]; then export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; fi
  done
}

# family PIDFILE: the process and its children.
family() {
  local pid
  pid=$(<"$1")
  # shellcheck disable=SC2046
  echo "$pid" $(cat /proc/"$pid"/task/*/children 2>/dev/null)
}
