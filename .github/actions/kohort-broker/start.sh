#!/usr/bin/env bash
# Start kohort broker in the background, and return when it listens.
# KOHORT_PYTHON, KOHORT_PORT, KOHORT_BROKERS, KOHORT_TOPICS and KOHORT_ARGUMENTS are the inputs.
set -euo pipefail

log="$RUNNER_TEMP/kohort-broker.log"
arguments=(--port "$KOHORT_PORT" --brokers "$KOHORT_BROKERS")
read -ra topics <<< "$(tr '\n' ' ' <<< "$KOHORT_TOPICS")"
for topic in "${topics[@]}"; do
  arguments+=(--topic "$topic")
done
while IFS= read -r argument; do
  if [ -n "$argument" ]; then arguments+=("$argument"); fi
done <<< "$KOHORT_ARGUMENTS"

: > "$log" # the loop below may read it before the broker creates it
nohup "$KOHORT_PYTHON" -m kohort broker "${arguments[@]}" > "$log" 2>&1 < /dev/null &
pid=$!
for _ in $(seq 300); do
  servers="$(sed -n 's/^listening on //p' "$log")"
  if [ -n "$servers" ] || ! kill -0 "$pid" 2> /dev/null; then break; fi
  sleep 0.1
done
if [ -z "$servers" ]; then
  echo "kohort broker did not start:" >&2
  cat "$log" >&2
  exit 1
fi
{
  echo "bootstrap-servers=$servers"
  echo "log=$log"
  echo "pid=$pid"
} >> "$GITHUB_OUTPUT"
echo "kohort broker listens on $servers"
