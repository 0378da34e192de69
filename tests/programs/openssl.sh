# Runs openssl: keys, certificates, signatures, ciphers, and TLS between a server and a client.
# packages: openssl
# also: harden
# version: openssl version
. "$(dirname "$0")/on.sh"

seq 100000 > data
for hash in sha256 sha3-512 blake2b512 md5; do on openssl dgst -"$hash" -r data; done
for cipher in aes-256-cbc chacha20 camellia-128-ctr; do
    on openssl enc -"$cipher" -pbkdf2 -pass pass:word -in data -out data.enc
    on openssl enc -d -"$cipher" -pbkdf2 -pass pass:word -in data.enc | cmp - data &&
        echo "$cipher: the same again"
done

on openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 \
    -subj /CN=ca 2> req.log
on openssl ecparam -name prime256v1 -genkey -noout -out server.key
on openssl req -new -key server.key -subj /CN=localhost -out server.csr
on openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
    -out server.pem 2> x509.log
on openssl verify -CAfile ca.pem server.pem
on openssl dgst -sha256 -sign server.key -out signature data
on openssl x509 -in server.pem -noout -pubkey > server.pub
on openssl dgst -sha256 -verify server.pub -signature signature data

on openssl s_server -accept 127.0.0.1:0 -key server.key -cert server.pem -www -naccept 2 \
    > server.log 2>&1 &
server=$!
trap 'kill $server 2> /dev/null || true' EXIT
for attempt in $(seq 1200); do
    grep -q '^ACCEPT' server.log && break
    sleep 0.1
done
port=$(sed -n 's/^ACCEPT .*:\([0-9]*\)$/\1/p' server.log)
for version in tls1_2 tls1_3; do
    printf 'GET / HTTP/1.0\r\n\r\n' |
        on openssl s_client -connect "127.0.0.1:$port" -servername localhost -CAfile ca.pem \
            -$version -ign_eof 2> client.log |
        grep -c -E '^Verify return code: 0|^ *Verification: OK|Cipher *(:|is) '
done
wait
