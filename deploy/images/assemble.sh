#!/bin/sh
# While an image is built: lays out what the images get of this repository, each tree with the same modes and times every time.
#   assemble.sh SOURCE DIRECTORY: makes DIRECTORY/control-plane, /inference-node and /both
set -eu
source=$1 out=$2

# Each program with what both share, and the commands. Tests are left out by the ignore file.
lay_out() {
  root=$1 && shift
  mkdir -p "$root/app" "$root/usr/local/bin" "$root/home/matting"
  for path in LICENSE package.json bin client/package.json client/src deploy/images/healthcheck.ts docs/images/demo.jpg program proto "$@"; do
    mkdir -p "$root/app/$(dirname "$path")"
    cp -R "$source/$path" "$root/app/$(dirname "$path")/"
  done
  command matting "$root" 'exec node /app/bin/matting.ts "$@"'
}

command() {
  printf '#!/bin/sh\n%s\n' "$3" >"$2/usr/local/bin/$1"
  chmod 755 "$2/usr/local/bin/$1"
}

healthcheck() {
  # shellcheck disable=SC2016 # expanded when it runs
  command matting-healthcheck "$1" 'exec node /app/deploy/images/healthcheck.ts "${MATTING_HOST:-}" "'"$2"'" "$@"'
}

# A volume that is mounted over one of these takes its mode, so that any user may write there, as in other official images.
places() {
  root=$1 && shift
  for place in "$@"; do mkdir -p "$root/$place" && chmod 1777 "$root/$place"; done
}

control_plane='control-plane client/README.md docs'
inference_node='inference-node models'
# shellcheck disable=SC2086 # lists of paths
{
  lay_out "$out/control-plane" $control_plane
  lay_out "$out/inference-node" $inference_node
  lay_out "$out/both" $control_plane $inference_node
}
install -D -m 755 "$source/deploy/systemd/matting-command" "$out/control-plane/usr/local/bin/matting-command"
healthcheck "$out/control-plane" '${MATTING_PORT:-8080}'
healthcheck "$out/inference-node" '${MATTING_NODE_HTTP_PORT:-50052}'
healthcheck "$out/both" '${MATTING_PORT:-8080}'
for tree in control-plane inference-node both; do chmod -R u=rwX,go=rX "$out/$tree"; done
places "$out/control-plane" data backups
places "$out/inference-node" models
places "$out/both" data models pictures
