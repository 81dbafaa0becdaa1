#!/bin/sh
# Builds versitygw (Apache-2.0), the object store of tests, once per machine, and prints the directory it lies in, where
# tests find it. Fails, and says why, where it cannot: without Go, without a module proxy, or when it takes too long.
set -eu
version=v1.8.0
directory=${XDG_CACHE_HOME:-$HOME/.cache}/matting-test-tools/versitygw-$version
if [ ! -x "$directory/versitygw" ]; then
  if ! command -v go >/dev/null; then
    echo "versitygw cannot be built: no Go here" >&2
    exit 1
  fi
  mkdir -p "$directory"
  # Two minutes on two cores.
  GOBIN=$directory CGO_ENABLED=0 GOFLAGS=-trimpath timeout 300 nice \
    go install -ldflags='-s -w' "github.com/versity/versitygw/cmd/versitygw@$version" >&2 || {
    echo "versitygw $version could not be built" >&2
    exit 1
  }
fi
echo "$directory"
