#!/bin/sh
# The rights that walstream needs in Kafka, and nothing else, by Kafka's own tool.
#
#   BOOTSTRAP=kafka:9092 PIPELINE=bank.bank_outbox_slot TOPICS="orders payments" deploy/kafka/acls.sh
#
# PIPELINE        the pipeline's name: <database>.<slot>, or --pipeline
# TOPICS          topics that rows go to, by name; empty: none
# TOPIC_PREFIXES  the same by prefix, for --topic-pattern: outbox.event.
# PRINCIPAL       who logs in: User:walstream; of a certificate, its subject
# CREATE_TOPICS   yes with --create-topics
# DEAD_LETTERS    yes with --on-poison dead-letter
# READ            yes for walstream dead-letters
# REPLAY          yes for walstream replay
# PAUSE           yes for walstream pause and resume by this principal
# COMMAND_CONFIG  client settings of the administrator, for a broker with logins
# KAFKA_ACLS      the tool, kafka-acls.sh; echo shows what would be done
#
# Describe comes with Read and Write. Nothing is needed on the cluster, nor on
# consumer groups; walstream drop takes Delete, and is an administrator's. Brokers before 3.0 want IdempotentWrite on the cluster beside it.
set -eu

: "${BOOTSTRAP:?is the address of a broker, kafka:9092}"
: "${PIPELINE:?is the name of the pipeline, bank.bank_outbox_slot}"
TOPICS=${TOPICS:-} TOPIC_PREFIXES=${TOPIC_PREFIXES:-} PRINCIPAL=${PRINCIPAL:-User:walstream}

grant() { # operations..., behind -- the resource
    operations=
    while [ "$1" != -- ]; do
        operations="$operations --operation $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # operations are words
    "${KAFKA_ACLS:-kafka-acls.sh}" --bootstrap-server "$BOOTSTRAP" ${COMMAND_CONFIG:+--command-config "$COMMAND_CONFIG"} \
        --add --allow-principal "$PRINCIPAL" $operations "$@"
}

# Rows: DescribeConfigs reads max.message.bytes, so that a row that is too large is
# named before it is sent. Read tells whose an open transaction is: exactly-once
# delivery looks for one of its own that a broker has kept, before the first row.
rights="Read Write DescribeConfigs${CREATE_TOPICS:+ Create}"
# shellcheck disable=SC2086
for topic in $TOPICS; do grant $rights -- --topic "$topic"; done
# shellcheck disable=SC2086
for prefix in $TOPIC_PREFIXES; do grant $rights -- --topic "$prefix" --resource-pattern-type prefixed; done

# The checkpoint: made at the first start, read at each, and proved to be compacted.
grant Read Write Create DescribeConfigs -- --topic "walstream.checkpoints.$PIPELINE"

# Which rows were published over which stretch of the WAL. Not with --history-retention 0s.
grant Read Write Create DescribeConfigs -- --topic "walstream.history.$PIPELINE"

# Whether an operator has paused the pipeline.
# shellcheck disable=SC2086
grant Read ${PAUSE:+Write Create} -- --topic "walstream.control.$PIPELINE"

# Rows put aside.
if [ -n "${DEAD_LETTERS:-}" ]; then
    # shellcheck disable=SC2086
    grant Write Create DescribeConfigs ${READ:+Read} -- --topic "walstream.dead-letters.$PIPELINE"
fi

# A replay has a checkpoint of its own.
if [ -n "${REPLAY:-}" ]; then
    grant Read Write Create DescribeConfigs -- --topic "walstream.checkpoints.$PIPELINE.replay"
    if [ -n "${DEAD_LETTERS:-}" ]; then grant Write Create DescribeConfigs -- --topic "walstream.dead-letters.$PIPELINE.replay"; fi
fi

# Both deliveries write the checkpoint in a transaction; the ids are <pipeline>.0
# and .1, and the dot keeps a pipeline of a longer name out.
grant Write -- --transactional-id "walstream.$PIPELINE." --resource-pattern-type prefixed
