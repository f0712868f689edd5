#!/usr/bin/env bash
# Run a command that fetches something. A network fails now and then in the middle of a file, where pip gives up: then the
# command is run again, twice at most (AGAIN_S: seconds between, default 5 30).
set -u
for pause in ${AGAIN_S-5 30} last; do
  "$@" && exit 0
  code=$?
  [ "$pause" = last ] && exit "$code"
  echo "${0##*/}: $1 failed with exit code $code, once more in $pause s" >&2
  sleep "$pause"
done
