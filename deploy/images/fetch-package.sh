#!/bin/sh
# Fetches one package of a lock file, checks its bytes against the file's sha512, and unpacks it: what is needed before there is an npm.
#   fetch-package.sh LOCKFILE NAME DIRECTORY
# NPM_CONFIG_REGISTRY names the registry; CURL_CA_BUNDLE, as curl reads it, an authority of your own.
set -eu
lock=$1 name=$2 directory=$3
field() {
  awk -v entry="\"node_modules/$name\": {" -v key="\"$1\":" '
    index($0, entry) { within = 1 }
    within && index($0, key) { gsub(/[",]/, "", $2); print $2; exit }' "$lock"
}
version=$(field version)
integrity=$(field integrity)
case $integrity in
sha512-?*) ;;
*) echo "fetch-package: $lock has no sha512 of $name" >&2 && exit 65 ;;
esac
archive=$(mktemp)
curl --fail --silent --show-error --location --retry 3 --max-time 600 --output "$archive" \
  "${NPM_CONFIG_REGISTRY%/}/$name/-/$name-$version.tgz"
found=sha512-$(openssl dgst -sha512 -binary "$archive" | base64 -w0)
if [ "$found" != "$integrity" ]; then
  echo "fetch-package: $name $version has another sha512 than $lock: $found" >&2
  exit 65
fi
mkdir -p "$directory"
tar -xzf "$archive" -C "$directory" --strip-components=1 --no-same-owner
rm "$archive"
