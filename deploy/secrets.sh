#!/bin/sh
# Makes what must be secret, once: what is there already is kept. The files are for the containers' own user to read; their folder
# is for you alone.
#
#     deploy/secrets.sh [FOLDER]
set -eu
folder="${1:-$(dirname "$0")/secrets}"
umask 022
mkdir -p "$folder"
chmod 700 "$folder"

# 256 random bits, as base64url.
random() {
    head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'
}

# keep NAME TEXT: writes a secret unless it is there.
keep() {
    if [ ! -s "$folder/$1" ]; then
        printf '%s\n' "$2" > "$folder/$1"
        echo "made $1"
    fi
}

for role in proxy projector upkeep admin operator; do
    keep "nats-$role" "$(random)"
done
keep key-ring "k1:$(random)"
keep peppers "p1:$(random)"
keep postgres-password "$(random)"
keep postgres-url "postgres://waybill:$(cat "$folder/postgres-password")@postgres:5432/waybill"
