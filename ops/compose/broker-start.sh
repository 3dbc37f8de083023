#!/bin/sh
# Starts a broker in a container.
#
# Settings come from a file that its containers share and cannot write. Which of them is the master
# changes with every promotion, so role and number are kept in a file beside the store: they are
# taken from there, and from the environment at the first start only. RMQ_NUMBER is 0 for the first
# master and another number for each slave.
set -eu
umask 077
shared=${RMQ_SHARED:-/etc/rmq/broker.conf}
secret=${RMQ_SECRET:-/etc/rmq-secret/broker.conf}
data=${RMQ_DATA:-/var/lib/rmq}
number=${RMQ_NUMBER:-${HOSTNAME##*-}}
own=$data/broker.conf

kept() {
    sed -n "s/^$1=//p" "$own" 2>/dev/null | tail -n 1
}

role=$(kept brokerRole)
id=$(kept brokerId)
if [ -z "$role" ] || [ -z "$id" ]; then
    id=$number
    if [ "$number" = 0 ]; then role=${RMQ_ROLE:-SYNC_MASTER}; else role=SLAVE; fi
fi
{
    cat "$shared"
    # haSecret and other secrets, if there are any.
    if [ -f "$secret" ]; then echo && cat "$secret"; fi
    echo
    echo "brokerRole=$role"
    echo "brokerId=$id"
    if [ -n "${RMQ_ADDRESS:-}" ]; then
        echo "brokerIP1=$RMQ_ADDRESS"
        echo "brokerIP2=$RMQ_ADDRESS"
    fi
} >"$own.new"
mv "$own.new" "$own"
exec "${RMQ_PROGRAM:-rmq}" broker -c "$own"
