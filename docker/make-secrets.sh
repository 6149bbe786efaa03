#!/bin/sh
# Makes the files that docker-compose.yml mounts as secrets: sh docker/make-secrets.sh [FOLDER]
# Files that are there stay as they are. The folder is closed to other users; containers see single files.
set -eu
folder=${1:-secrets}
umask 077
mkdir -p "$folder"

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

keep() {  # NAME CONTENT
  if [ ! -e "$folder/$1" ]; then
    printf '%s' "$2" > "$folder/$1"
    chmod 0444 "$folder/$1"  # read in containers by users of their own
  fi
}

keep postgres_password "$(random)"
keep valkey_password "$(random)"
keep coserve_secret "$(random)"
keep metrics_token "$(random)"
keep database_url "postgresql+psycopg://coserve:$(cat "$folder/postgres_password")@postgres:5432/coserve"
keep broker_url "redis://:$(cat "$folder/valkey_password")@valkey:6379/0"
keep valkey.conf "appendonly yes
maxmemory-policy noeviction
dir /data
requirepass $(cat "$folder/valkey_password")
"
