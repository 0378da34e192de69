# nginx with two workers: files, compression, a proxy onto itself, a reload, under ab and curl.
# packages: nginx-light apache2-utils curl
# also: check harden
# version: nginx -v
. "$(dirname "$0")/on.sh"

port=$((20000 + $$ % 10000)) # ab supports only TCP sockets
mkdir -p www/sub
seq 20000 > www/numbers.txt
for n in $(seq 50); do echo "page $n $(seq -s ' ' $n)" > www/sub/$n.html; done
cat > nginx.conf <<CONF
daemon off;
worker_processes 2;
pid $PWD/nginx.pid;
error_log $PWD/error.log;
events { worker_connections 256; }
http {
    access_log $PWD/access.log;
    client_body_temp_path $PWD/body; proxy_temp_path $PWD/proxy; fastcgi_temp_path $PWD/fastcgi;
    uwsgi_temp_path $PWD/uwsgi; scgi_temp_path $PWD/scgi;
    types { text/html html; text/plain txt; }
    gzip on; gzip_types text/plain; gzip_min_length 100;
    server {
        listen unix:$PWD/nginx.sock;
        root $PWD/www;
        location /sub/ { autoindex on; }
        location /front/ { proxy_pass http://unix:$PWD/nginx.sock:/; proxy_buffers 8 4k; }
        location /hello { return 200 "hello \$arg_name\n"; }
    }
    server { listen 127.0.0.1:$port reuseport; root $PWD/www; }
}
CONF
[ "$(id -u)" = 0 ] && sed -i "1i user $(id -un);" nginx.conf
get() { curl --silent --show-error --fail --unix-socket nginx.sock "http://localhost$1" "${@:2}"; }

on nginx -p "$PWD" -c nginx.conf -e error.log &
trap 'kill $! 2> /dev/null || true' EXIT
for attempt in $(seq 1200); do
    get /hello > /dev/null 2>&1 && break
    sleep 0.1
done
get '/hello?name=you'
get /numbers.txt | digest
get /numbers.txt --compressed | digest
get /front/front/numbers.txt --compressed | digest
get /sub/ | grep -c '\.html'
for n in $(seq 50); do get /front/sub/$n.html; done | digest
get /numbers.txt --range 1000-1999 | digest
get /missing 2>&1 || true
ab -q -n 2000 -c 20 http://127.0.0.1:$port/sub/17.html | grep -E '^(Complete|Failed) requests'
ab -q -n 300 -c 10 -H 'Accept-Encoding: gzip' http://127.0.0.1:$port/numbers.txt |
    grep -E '^(Complete|Failed) requests'
kill -HUP "$(cat nginx.pid)"
for n in $(seq 20); do get /front/sub/$n.html; done | digest
kill -QUIT "$(cat nginx.pid)"
wait
grep -c -E '\[(alert|emerg|crit)\]' error.log || true
# The server's standard error is its log.
grep '^ebbmalloc' error.log >&2 || true
