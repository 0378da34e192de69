# haproxy with threads: pages of its own, a proxy in front of another, rules, statistics, a reload.
# packages: haproxy curl
# also: harden
# version: haproxy -v
. "$(dirname "$0")/on.sh"

cat > haproxy.cfg <<CONF
global
    nbthread 4
    stats socket $PWD/admin.sock mode 600 level admin
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend back
    bind unix@$PWD/back.sock
    http-request return status 200 content-type text/plain lf-string "back: %[path] %[url_param(name),lower] %[req.hdr(x-way)]\n"
frontend front
    bind unix@$PWD/front.sock
    http-request set-header X-Way "%[path,sha1,hex]"
    http-request deny if { path_beg /secret }
    use_backend words if { path_reg ^/[a-z]+[0-9]+$ }
    default_backend pool
backend pool
    balance roundrobin
    server one unix@$PWD/back.sock
    server two unix@$PWD/back.sock
backend words
    compression algo gzip
    compression type text/plain
    server one unix@$PWD/back.sock
CONF
get() { curl --silent --show-error --unix-socket front.sock "http://localhost$1" "${@:2}"; }

on haproxy -c -f haproxy.cfg
on haproxy -W -db -p pid -f haproxy.cfg &
trap 'kill $(cat pid) 2> /dev/null || true' EXIT
for attempt in $(seq 1200); do
    get / 2> /dev/null | grep -q back && break
    sleep 0.1
done
get '/some/path?name=THERE'
get /secret/page | grep -c 403
get "/word[1-300]" --compressed | digest
get "/other/[1-300]" -H 'X-Long: 0123456789' | digest
kill -USR2 "$(cat pid)"
get "/word[1-50]" --retry 5 --retry-all-errors | digest
# The file is empty for a moment while the new process writes it.
until [ -s pid ]; do sleep 0.1; done
kill -TERM "$(cat pid)"
wait || true
