# ssh-keygen with keys, conversions, signatures, an authority and a list of revoked keys.
# packages: openssh-client
# also: check harden
# version: ssh -V
. "$(dirname "$0")/on.sh"

for type in ed25519 ecdsa rsa; do
    on ssh-keygen -q -t $type $([ $type = rsa ] && echo -b 2048) -N '' -C tester -f key-$type
    on ssh-keygen -l -f key-$type.pub | awk '{ print $1, $3, $4 }'
    on ssh-keygen -y -f key-$type | cut -d ' ' -f 1
    on ssh-keygen -e -f key-$type.pub | head -n 1
done
on ssh-keygen -q -s key-ed25519 -I name -n user -V always:forever key-rsa.pub
on ssh-keygen -L -f key-rsa-cert.pub | grep -E 'Type|Principals|Valid'
echo text > file
on ssh-keygen -q -Y sign -f key-ecdsa -n file file 2> /dev/null
echo "tester $(cut -d ' ' -f 1,2 key-ecdsa.pub)" > allowed
on ssh-keygen -Y verify -f allowed -I tester -n file -s file.sig < file | cut -d ' ' -f 1-4
on ssh-keygen -q -k -f revoked key-rsa.pub
on ssh-keygen -Q -f revoked key-rsa.pub > /dev/null || echo "revoked"
